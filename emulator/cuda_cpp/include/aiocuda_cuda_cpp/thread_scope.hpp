// The scopes of libcu++'s synchronisation. Every scope is the whole process here, which is never too little.
#pragma once

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

}  // namespace cuda
