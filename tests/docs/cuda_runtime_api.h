/* SPDX-License-Identifier: MIT */
/*
 * The few calls of the CUDA runtime that the documents' examples use, so that these are built and
 * run without a CUDA toolkit. Written from the CUDA Runtime API reference, "Memory Management" and
 * "Interactions with the CUDA Driver API": the first call makes the primary context of device 0
 * current. cudart.c is the library, of the calls that are run.
 */
#ifndef TESTS_DOCS_CUDA_RUNTIME_API_H
#define TESTS_DOCS_CUDA_RUNTIME_API_H

#include <stddef.h>

typedef enum cudaError {
	cudaSuccess = 0,
	cudaErrorUnknown = 999
} cudaError_t;

cudaError_t cudaMalloc(void **ptr, size_t size);
cudaError_t cudaFree(void *ptr);
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind);
cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int flags);
typedef struct CUstream_st *cudaStream_t;
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

#endif
