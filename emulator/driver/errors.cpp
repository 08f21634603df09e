// The names and meanings of the error codes. Answered without cuInit, and in a forked child.
#include "api.hpp"

namespace {

struct ErrorText {
  int code;
  const char* name;
  const char* meaning;
};

constexpr ErrorText error_texts[] = {
#define ERROR(name, code, meaning) {code, "CUDA_" #name, meaning},
#include "errors.inc"
#undef ERROR
};

const ErrorText* find(CUresult code) {
  for (const ErrorText& text : error_texts) {
    if (text.code == static_cast<int>(code)) return &text;
  }
  return nullptr;
}

}  // namespace

CUresult cuGetErrorName(CUresult code, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* text = find(code);
  *name = text != nullptr ? text->name : nullptr;
  return text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char** meaning) {
  if (meaning == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* text = find(code);
  *meaning = text != nullptr ? text->meaning : nullptr;
  return text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
