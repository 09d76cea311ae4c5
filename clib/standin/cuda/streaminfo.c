/* SPDX-License-Identifier: Apache-2.0 */
/* streaminfo.c: what a stream is, and its attributes (kept, without effect). */
#include <string.h>

#include "enter.h"
#include "stream.h"

/* looks a stream up with the lock taken; unlocked again unless it is found */
static CUresult enter_stream(CUstream handle, struct sd_stream **stream)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(handle, stream);
	return result == CUDA_SUCCESS ? result : sd_leave(result);
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!priority)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*priority = stream->priority;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = stream->flags;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!streamId)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*streamId = stream->object.id;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pctx)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pctx = (CUcontext)stream->context;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!phCtx)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*phCtx = (CUgreenCtx)stream->green;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pCtx)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pCtx = stream->green ? NULL : (CUcontext)stream->context;
	if (pGreenCtx)
		*pGreenCtx = (CUgreenCtx)stream->green;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!device)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*device = stream->context->card->ordinal;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!value_out)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value_out->accessPolicyWindow = stream->window;
		break;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value_out->syncPolicy = stream->policy;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value_out->priority = stream->priority;
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value_out->memSyncDomain = (CUlaunchMemSyncDomain)stream->domain;
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value_out->memSyncDomainMap = stream->domains;
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	struct sd_stream *stream = NULL;
	CUresult result = enter_stream(hStream, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!value)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		stream->window = value->accessPolicyWindow;
		break;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		stream->policy = value->syncPolicy;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		stream->priority = value->priority;
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		stream->domain = (unsigned int)value->memSyncDomain;
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		stream->domains = value->memSyncDomainMap;
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
	struct sd_stream *to = NULL;
	struct sd_stream *from = NULL;
	CUresult result = enter_stream(dst, &to);

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(src, &from);
	if (result == CUDA_SUCCESS) {
		to->window = from->window;
		to->policy = from->policy;
		to->domain = from->domain;
		to->domains = from->domains;
	}
	return sd_leave(result);
}

SD_PTSZ(cuStreamGetPriority, (CUstream hStream, int *priority), sd_per_thread(hStream), priority)
SD_PTSZ(cuStreamGetFlags, (CUstream hStream, unsigned int *flags), sd_per_thread(hStream), flags)
SD_PTSZ(cuStreamGetId, (CUstream hStream, unsigned long long *streamId), sd_per_thread(hStream), streamId)
SD_PTSZ(cuStreamGetCtx, (CUstream hStream, CUcontext *pctx), sd_per_thread(hStream), pctx)
SD_PTSZ(cuStreamGetCtx_v2, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx), sd_per_thread(hStream), pCtx,
	pGreenCtx)
SD_PTSZ(cuStreamGetDevice, (CUstream hStream, CUdevice *device), sd_per_thread(hStream), device)
SD_PTSZ(cuStreamGetAttribute, (CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out),
	sd_per_thread(hStream), attr, value_out)
SD_PTSZ(cuStreamSetAttribute, (CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value),
	sd_per_thread(hStream), attr, value)
SD_PTSZ(cuStreamCopyAttributes, (CUstream dst, CUstream src), sd_per_thread(dst), sd_per_thread(src))
