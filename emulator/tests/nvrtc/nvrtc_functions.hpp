// The functions of NVRTC that the tests call, as its public header declares them (handles as void*).
#pragma once

#include <cstddef>

extern "C" {
const char* nvrtcGetErrorString(int result);
int nvrtcVersion(int* major, int* minor);
int nvrtcGetNumSupportedArchs(int* count);
int nvrtcGetSupportedArchs(int* architectures);
int nvrtcCreateProgram(void** program, const char* source, const char* name, int header_count,
                       const char* const* headers, const char* const* include_names);
int nvrtcDestroyProgram(void** program);
int nvrtcCompileProgram(void* program, int option_count, const char* const* options);
int nvrtcGetPTXSize(void* program, std::size_t* size);
int nvrtcGetPTX(void* program, char* ptx);
int nvrtcGetCUBINSize(void* program, std::size_t* size);
int nvrtcGetCUBIN(void* program, char* cubin);
int nvrtcGetLTOIRSize(void* program, std::size_t* size);
int nvrtcGetOptiXIR(void* program, char* ir);
int nvrtcGetProgramLogSize(void* program, std::size_t* size);
int nvrtcGetProgramLog(void* program, char* log);
int nvrtcAddNameExpression(void* program, const char* expression);
int nvrtcGetLoweredName(void* program, const char* expression, const char** lowered);
int nvrtcGetPCHHeapSize(std::size_t* size);
int nvrtcSetPCHHeapSize(std::size_t size);
int nvrtcGetPCHCreateStatus(void* program);
int nvrtcSetFlowCallback(void* program, int (*callback)(void*, void*), void* payload);
}
