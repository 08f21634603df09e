// Claims on parts of a buffer: what each forbids, to whom, and how long.
#include <doctest/doctest.h>

#include "dataflow/buffer.hpp"

using namespace aiocuda::dataflow;

namespace {

GroupRef make_group(GroupRef parent = nullptr) { return std::make_shared<Group>(Group{std::move(parent)}); }

constexpr const Group* nobody = nullptr;  // the group of an array that was never shared, partitioned or moved
const Region part{0, 50}, rest{50, 50}, all{0, 100};

}  // namespace

TEST_CASE("what is shared is read by all and written by nobody") {
  Claims claims;
  const GroupRef group = make_group();
  claims.add(ClaimKind::shared, part, group, "here");
  for (const Group* asking : {nobody, static_cast<const Group*>(group.get())}) {
    CHECK_FALSE(claims.against_access(all, false, asking));
    CHECK(claims.against_access(all, true, asking));
    CHECK(claims.against_transition(all, false, asking));
    CHECK_FALSE(claims.against_share(all, asking));
  }
  CHECK_FALSE(claims.against_access(rest, true, nobody));
  CHECK(claims.against_access(all, true, nobody)->place == "here");
  CHECK(claims.of(group.get())->kind == ClaimKind::shared);
}

TEST_CASE("what is partitioned is used through the partition alone") {
  Claims claims;
  const GroupRef group = make_group();
  claims.add(ClaimKind::partitioned, part, group, "here");
  CHECK(claims.against_access(all, false, nobody));
  CHECK_FALSE(claims.against_access(part, true, group.get()));
  CHECK(claims.against_transition(part, true, group.get()));
  CHECK(claims.against_share(part, group.get()));
  CHECK_FALSE(claims.against_transition(rest, true, nobody));
}

TEST_CASE("what was moved is used through the handle it was moved to, and those that came of it") {
  Claims claims;
  const GroupRef group = make_group(), shared = make_group(group), other = make_group();
  claims.add(ClaimKind::moved, part, group, "here");
  for (const GroupRef& owner : {group, shared}) {
    CHECK_FALSE(claims.against_access(part, true, owner.get()));
    CHECK_FALSE(claims.against_transition(part, true, owner.get()));
    CHECK_FALSE(claims.against_share(part, owner.get()));
  }
  for (const Group* asking : {nobody, static_cast<const Group*>(other.get())}) {
    CHECK(claims.against_access(part, false, asking));
    CHECK(claims.against_transition(part, true, asking));
    CHECK(claims.against_share(part, asking));
  }
}

TEST_CASE("what is lent for reading is shared, and never written") {
  Claims claims;
  const GroupRef group = make_group();
  claims.add(ClaimKind::read_only, part, group, "its owner");
  CHECK_FALSE(claims.against_access(part, false, group.get()));
  CHECK(claims.against_access(part, true, group.get()));
  CHECK_FALSE(claims.against_share(part, group.get()));
  CHECK_FALSE(claims.against_transition(part, false, group.get()));
  CHECK(claims.against_transition(part, true, group.get()));
}

TEST_CASE("a claim ends with its last handle, and a move's and a lender's do not") {
  Claims claims;
  for (const ClaimKind kind : {ClaimKind::shared, ClaimKind::partitioned}) {
    {
      const GroupRef group = make_group();
      claims.add(kind, part, group, "here");
      CHECK(claims.against_access(part, true, nobody));
    }
    CHECK_FALSE(claims.against_access(part, true, nobody));
    CHECK(claims.empty());
  }
  for (const ClaimKind kind : {ClaimKind::moved, ClaimKind::read_only}) {
    Claims kept;
    kept.add(kind, part, make_group(), "here");
    CHECK(kept.against_access(part, true, nobody));
  }
}

TEST_CASE("all claims that came about from a group end together, and those of others stay") {
  Claims claims;
  const GroupRef loan = make_group(), other = make_group();
  for (const ClaimKind kind : {ClaimKind::moved, ClaimKind::read_only})
    claims.add(kind, part, make_group(make_group(loan)), "here");
  claims.add(ClaimKind::shared, part, make_group(loan), "nobody holds it any more");
  claims.add(ClaimKind::moved, rest, make_group(other), "there");
  claims.remove_all_of(*loan);
  CHECK_FALSE(claims.against_access(part, true, nobody));
  CHECK(claims.against_access(all, true, nobody)->place == "there");
}

TEST_CASE("a claim that is removed is no more, and others stay") {
  Claims claims;
  const GroupRef group = make_group(), other = make_group();
  claims.add(ClaimKind::partitioned, part, group, "here");
  claims.add(ClaimKind::partitioned, rest, other, "there");
  claims.remove(group.get());
  CHECK_FALSE(claims.against_access(part, true, nobody));
  CHECK(claims.against_access(all, true, nobody)->place == "there");
}

TEST_CASE("a claim on nothing is its handles' alone") {
  Claims claims;
  const GroupRef group = make_group();
  claims.add(ClaimKind::shared, Region{}, group, "here");
  REQUIRE(claims.of(group.get()));
  CHECK_FALSE(claims.against_access(all, true, nobody));
  CHECK(claims.against_access(Region{}, true, group.get()));
  CHECK(claims.against_transition(Region{}, true, group.get()));
}

TEST_CASE("a chain of moves is one claim, and one group") {
  Claims claims;
  GroupRef group = make_group();
  claims.add(ClaimKind::moved, part, group, "first");
  for (int i = 0; i < 200'000; ++i) {
    const GroupRef next = make_group(group);
    REQUIRE(claims.move_on(group.get(), part, next, "later"));
    CHECK_FALSE(claims.of(group.get()));
    group = next;
  }
  CHECK_FALSE(group->parent);
  CHECK(claims.against_access(part, false, nobody)->place == "later");
  CHECK_FALSE(claims.against_access(part, true, group.get()));
}

TEST_CASE("a part of what was moved is moved by a claim of its own") {
  Claims claims;
  const GroupRef whole = make_group(), moved = make_group(whole), shared = make_group();
  claims.add(ClaimKind::moved, all, whole, "first");
  CHECK_FALSE(claims.move_on(whole.get(), part, moved, "later"));
  claims.add(ClaimKind::moved, part, moved, "later");
  CHECK_FALSE(claims.against_access(part, true, moved.get()));
  CHECK_FALSE(claims.against_access(rest, true, whole.get()));
  CHECK(claims.against_access(part, true, whole.get())->place == "later");
  claims.add(ClaimKind::shared, rest, shared, "there");
  CHECK_FALSE(claims.move_on(shared.get(), rest, make_group(), "never"));
}

TEST_CASE("a new group is not taken for one that is gone") {
  Claims claims;
  claims.add(ClaimKind::shared, part, make_group(), "here");
  for (int i = 0; i < 100; ++i) CHECK_FALSE(claims.of(make_group().get()));
  const GroupRef other = make_group();
  CHECK_FALSE(claims.move_on(other.get(), part, make_group(), "never"));
  CHECK_FALSE(claims.against_access(part, true, other.get()));
  CHECK(claims.empty());
}

TEST_CASE("what has ended goes, and what is behind it stays") {
  Claims claims;
  const GroupRef group = make_group();
  claims.add(ClaimKind::shared, part, make_group(), "gone");
  claims.add(ClaimKind::shared, rest, group, "there");
  claims.add(ClaimKind::shared, part, make_group(), "gone");
  CHECK_FALSE(claims.against_access(part, true, nobody));
  CHECK(claims.against_access(rest, true, nobody)->place == "there");
  CHECK(claims.of(group.get())->place == "there");
}
