/* SPDX-License-Identifier: MIT */
/*
 * openmpi BYTES ROUNDS, for openmpi.sh: two ranks exchange a message of CUDA memory by MPI. Prints
 * half the time of a round in us, and compares the bytes. Each rank takes its own GPU if there are
 * two.
 */
#include <cuda.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CU(call)                                                               \
	do {                                                                   \
		CUresult r_ = (call);                                          \
		if (r_) {                                                      \
			fprintf(stderr, "%s: %d\n", #call, (int)r_);           \
			MPI_Abort(MPI_COMM_WORLD, 2);                          \
		}                                                              \
	} while (0)

static void round_trip(int rank, void *out, void *in, int bytes)
{
	if (rank == 0) {
		MPI_Send(out, bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
		MPI_Recv(in, bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		MPI_Recv(in, bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(in, bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD);
	}
}

int main(int argc, char **argv)
{
	int rank, ranks, gpus, bytes = argc > 2 ? atoi(argv[1]) : 8, rounds = argc > 2 ? atoi(argv[2]) : 1000;
	unsigned char *want = malloc((size_t)bytes), *got = malloc((size_t)bytes);
	CUdeviceptr out, in;
	CUcontext ctx;
	CUdevice gpu;
	double begin;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || !want || !got || bytes < 1)
		MPI_Abort(MPI_COMM_WORLD, 2);
	CU(cuInit(0));
	CU(cuDeviceGetCount(&gpus));
	CU(cuDeviceGet(&gpu, rank % gpus));
	CU(cuDevicePrimaryCtxRetain(&ctx, gpu));
	CU(cuCtxSetCurrent(ctx));
	CU(cuMemAlloc(&out, (size_t)bytes));
	CU(cuMemAlloc(&in, (size_t)bytes));
	for (int turn = 0; turn < 20; turn++) {
		for (int i = 0; i < bytes; i++)
			want[i] = (unsigned char)(i * 7 + turn);
		if (rank == 0)
			CU(cuMemcpyHtoD(out, want, (size_t)bytes));
		CU(cuMemsetD8(in, 0xff, (size_t)bytes));
		CU(cuCtxSynchronize());
		MPI_Barrier(MPI_COMM_WORLD);
		round_trip(rank, (void *)out, (void *)in, bytes);
		CU(cuMemcpyDtoH(got, in, (size_t)bytes));
		if (memcmp(got, want, (size_t)bytes)) {
			fprintf(stderr, "rank %d: wrong bytes in round %d\n", rank, turn);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	for (int i = 0; i < rounds; i++)
		round_trip(rank, (void *)out, (void *)in, bytes);
	if (rank == 0)
		printf("LATENCY %.3f\n", (MPI_Wtime() - begin) / rounds / 2 * 1e6);
	CU(cuMemFree(out));
	CU(cuMemFree(in));
	MPI_Finalize();
	free(want);
	free(got);
	return 0;
}
