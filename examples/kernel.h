/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h: the few words of CUDA C++ that the kernels here use, so that clang
 * compiles them with no toolkit installed (-nocudainc -nocudalib). What clang
 * itself knows about a card begins with __nvvm_.
 */
#ifndef DIVVY_EXAMPLES_KERNEL_H
#define DIVVY_EXAMPLES_KERNEL_H

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

/* threadIdx.x and its like read a special register each. */
#define KERNEL_AXIS(axis, special) \
	static __device__ __attribute__((always_inline)) unsigned int read_##axis() { return special(); } \
	__declspec(property(get = read_##axis)) unsigned int axis
#define KERNEL_INDEX(name, special) \
	struct name { \
		KERNEL_AXIS(x, special##_x); \
		KERNEL_AXIS(y, special##_y); \
		KERNEL_AXIS(z, special##_z); \
	}

KERNEL_INDEX(kernel_thread_index, __nvvm_read_ptx_sreg_tid);
KERNEL_INDEX(kernel_block_index, __nvvm_read_ptx_sreg_ctaid);
KERNEL_INDEX(kernel_block_size, __nvvm_read_ptx_sreg_ntid);
KERNEL_INDEX(kernel_grid_size, __nvvm_read_ptx_sreg_nctaid);

#define threadIdx (kernel_thread_index())
#define blockIdx (kernel_block_index())
#define blockDim (kernel_block_size())
#define gridDim (kernel_grid_size())

enum { warpSize = 32 };

/* Four floats that are read and written together. */
struct alignas(16) float4 {
	float x, y, z, w;
};

static __device__ inline int __shfl_down_sync(unsigned int mask, int value, int delta)
{
	return __nvvm_shfl_sync_down_i32(mask, value, delta, 31);
}

static __device__ inline float __shfl_down_sync(unsigned int mask, float value, int delta)
{
	return __nvvm_shfl_sync_down_f32(mask, value, delta, 31);
}

static __device__ inline float __shfl_xor_sync(unsigned int mask, float value, int lanes)
{
	return __nvvm_shfl_sync_bfly_f32(mask, value, lanes, 31);
}

static __device__ inline unsigned int atomicAdd(unsigned int *address, unsigned int value)
{
	return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

static __device__ inline float fmaf(float a, float b, float c)
{
	return __builtin_fmaf(a, b, c);
}

static __device__ inline float sqrtf(float a)
{
	return __nvvm_sqrt_rn_f(a);
}

static __device__ inline float fmaxf(float a, float b)
{
	return __builtin_fmaxf(a, b);
}

/* 2 to the power of a, good to about 22 bits */
static __device__ inline float exp2_approx(float a)
{
	return __nvvm_ex2_approx_f(a);
}

#endif
