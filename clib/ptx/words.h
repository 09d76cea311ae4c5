/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.h: the words of PTX: instructions, modifiers, types and the like, each
 * list once. ast.h makes the enums of them, words.c finds them by name.
 *
 * X(enumerator, "text")
 */
#ifndef DIVVY_STANDIN_PTX_WORDS_H
#define DIVVY_STANDIN_PTX_WORDS_H

/* The first word of an instruction. */
#define PTX_OPCODES(X) \
	X(ABS, "abs") X(ACTIVEMASK, "activemask") X(ADD, "add") X(ADDC, "addc") X(ALLOCA, "alloca") X(AND, "and") \
	X(APPLYPRIORITY, "applypriority") X(ATOM, "atom") X(BAR, "bar") X(BARRIER, "barrier") X(BFE, "bfe") \
	X(BFI, "bfi") X(BFIND, "bfind") X(BMSK, "bmsk") X(BRA, "bra") X(BREV, "brev") X(BRKPT, "brkpt") X(BRX, "brx") \
	X(CALL, "call") X(CLUSTERLAUNCHCONTROL, "clusterlaunchcontrol") X(CLZ, "clz") X(CNOT, "cnot") \
	X(COPYSIGN, "copysign") X(COS, "cos") X(CP, "cp") X(CREATEPOLICY, "createpolicy") X(CVT, "cvt") \
	X(CVTA, "cvta") X(DISCARD, "discard") X(DIV, "div") X(DP2A, "dp2a") X(DP4A, "dp4a") X(ELECT, "elect") \
	X(EX2, "ex2") X(EXIT, "exit") X(FENCE, "fence") X(FMA, "fma") X(FNS, "fns") X(GETCTARANK, "getctarank") \
	X(GRIDDEPCONTROL, "griddepcontrol") X(ISSPACEP, "isspacep") X(ISTYPEP, "istypep") X(LD, "ld") \
	X(LDMATRIX, "ldmatrix") X(LDU, "ldu") X(LG2, "lg2") X(LOP3, "lop3") X(MAD, "mad") X(MAD24, "mad24") \
	X(MADC, "madc") X(MAPA, "mapa") X(MATCH, "match") X(MAX, "max") X(MBARRIER, "mbarrier") X(MEMBAR, "membar") \
	X(MIN, "min") X(MMA, "mma") X(MOV, "mov") X(MOVMATRIX, "movmatrix") X(MUL, "mul") X(MUL24, "mul24") \
	X(MULTIMEM, "multimem") X(NANOSLEEP, "nanosleep") X(NEG, "neg") X(NOT, "not") X(OR, "or") \
	X(PMEVENT, "pmevent") X(POPC, "popc") X(PREFETCH, "prefetch") X(PREFETCHU, "prefetchu") X(PRMT, "prmt") \
	X(RCP, "rcp") X(RED, "red") X(REDUX, "redux") X(REM, "rem") X(RET, "ret") X(RSQRT, "rsqrt") X(SAD, "sad") \
	X(SELP, "selp") X(SET, "set") X(SETMAXNREG, "setmaxnreg") X(SETP, "setp") X(SHF, "shf") X(SHFL, "shfl") \
	X(SHL, "shl") X(SHR, "shr") X(SIN, "sin") X(SLCT, "slct") X(SQRT, "sqrt") X(ST, "st") \
	X(STACKRESTORE, "stackrestore") X(STACKSAVE, "stacksave") X(STMATRIX, "stmatrix") X(SUB, "sub") \
	X(SUBC, "subc") X(SULD, "suld") X(SUQ, "suq") X(SURED, "sured") X(SUST, "sust") X(SZEXT, "szext") \
	X(TANH, "tanh") X(TENSORMAP, "tensormap") X(TESTP, "testp") X(TEX, "tex") X(TLD4, "tld4") X(TRAP, "trap") \
	X(TXQ, "txq") X(VABSDIFF, "vabsdiff") X(VABSDIFF2, "vabsdiff2") X(VABSDIFF4, "vabsdiff4") X(VADD, "vadd") \
	X(VADD2, "vadd2") X(VADD4, "vadd4") X(VAVRG2, "vavrg2") X(VAVRG4, "vavrg4") X(VMAD, "vmad") X(VMAX, "vmax") \
	X(VMAX2, "vmax2") X(VMAX4, "vmax4") X(VMIN, "vmin") X(VMIN2, "vmin2") X(VMIN4, "vmin4") X(VOTE, "vote") \
	X(VSET, "vset") X(VSET2, "vset2") X(VSET4, "vset4") X(VSHL, "vshl") X(VSHR, "vshr") X(VSUB, "vsub") \
	X(VSUB2, "vsub2") X(VSUB4, "vsub4") X(WGMMA, "wgmma") X(WMMA, "wmma") X(XOR, "xor")

/* Of registers, variables and instructions. X(enumerator, "text", bytes) */
#define PTX_TYPES(X) \
	X(B8, "b8", 1) X(B16, "b16", 2) X(B32, "b32", 4) X(B64, "b64", 8) X(B128, "b128", 16) X(U8, "u8", 1) \
	X(U16, "u16", 2) X(U32, "u32", 4) X(U64, "u64", 8) X(S8, "s8", 1) X(S16, "s16", 2) X(S32, "s32", 4) \
	X(S64, "s64", 8) X(F16, "f16", 2) X(F32, "f32", 4) X(F64, "f64", 8) X(BF16, "bf16", 2) X(F16X2, "f16x2", 4) \
	X(BF16X2, "bf16x2", 4) X(U16X2, "u16x2", 4) X(S16X2, "s16x2", 4) X(TF32, "tf32", 4) X(E4M3, "e4m3", 1) \
	X(E5M2, "e5m2", 1) X(E4M3X2, "e4m3x2", 2) X(E5M2X2, "e5m2x2", 2) X(B1, "b1", 1) X(U2, "u2", 1) \
	X(S2, "s2", 1) X(U4, "u4", 1) X(S4, "s4", 1) X(F32X2, "f32x2", 8) X(PRED, "pred", 1) X(TEXREF, "texref", 8) \
	X(SAMPLERREF, "samplerref", 8) X(SURFREF, "surfref", 8)

/* Modifiers with a field of their own in struct ptx_instruction. */
#define PTX_SPACES(X) \
	X(REG, "reg") X(SREG, "sreg") X(CONST, "const") X(GLOBAL, "global") X(LOCAL, "local") X(PARAM, "param") \
	X(SHARED, "shared") X(TEX, "tex") X(SHARED_CTA, "shared::cta") X(SHARED_CLUSTER, "shared::cluster") \
	X(PARAM_ENTRY, "param::entry") X(PARAM_FUNC, "param::func")

#define PTX_COMPARISONS(X) \
	X(EQ, "eq") X(NE, "ne") X(LT, "lt") X(LE, "le") X(GT, "gt") X(GE, "ge") X(LO, "lo") X(LS, "ls") X(HI, "hi") \
	X(HS, "hs") X(EQU, "equ") X(NEU, "neu") X(LTU, "ltu") X(LEU, "leu") X(GTU, "gtu") X(GEU, "geu") \
	X(NUM, "num") X(NAN, "nan")

#define PTX_ROUNDINGS(X) \
	X(RN, "rn") X(RZ, "rz") X(RM, "rm") X(RP, "rp") X(RNA, "rna") X(RS, "rs") X(RNI, "rni") X(RZI, "rzi") \
	X(RMI, "rmi") X(RPI, "rpi")

#define PTX_SCOPES(X) X(CTA, "cta") X(CLUSTER, "cluster") X(GPU, "gpu") X(GL, "gl") X(SYS, "sys")

#define PTX_SEMANTICS(X) \
	X(WEAK, "weak") X(RELAXED, "relaxed") X(ACQUIRE, "acquire") X(RELEASE, "release") X(ACQ_REL, "acq_rel") \
	X(SC, "sc") X(VOLATILE, "volatile") X(MMIO, "mmio")

/* What atom, red, vote, shfl, setp's second half, testp, prmt and txq do. */
#define PTX_OPERATIONS(X) \
	X(AND, "and") X(OR, "or") X(XOR, "xor") X(ADD, "add") X(MIN, "min") X(MAX, "max") X(INC, "inc") \
	X(DEC, "dec") X(EXCH, "exch") X(CAS, "cas") X(POPC, "popc") X(ALL, "all") X(ANY, "any") X(BALLOT, "ballot") \
	X(UP, "up") X(DOWN, "down") X(BFLY, "bfly") X(IDX, "idx") X(FINITE, "finite") X(INFINITE, "infinite") \
	X(NUMBER, "number") X(NOTANUMBER, "notanumber") X(NORMAL, "normal") X(SUBNORMAL, "subnormal") \
	X(F4E, "f4e") X(B4E, "b4e") X(RC8, "rc8") X(ECL, "ecl") X(ECR, "ecr") X(RC16, "rc16") X(WIDTH, "width") \
	X(HEIGHT, "height") X(DEPTH, "depth") X(CHANNEL_DATA_TYPE, "channel_data_type") \
	X(CHANNEL_ORDER, "channel_order") X(NORMALIZED_COORDS, "normalized_coords") X(ARRAY_SIZE, "array_size") \
	X(NUM_MIPMAP_LEVELS, "num_mipmap_levels") X(NUM_SAMPLES, "num_samples") X(MEMORY_LAYOUT, "memory_layout") \
	X(FORCE_UNNORMALIZED_COORDS, "force_unnormalized_coords") X(FILTER_MODE, "filter_mode") \
	X(ADDR_MODE_0, "addr_mode_0") X(ADDR_MODE_1, "addr_mode_1") X(ADDR_MODE_2, "addr_mode_2")

#define PTX_GEOMETRIES(X) \
	X(1D, "1d") X(2D, "2d") X(3D, "3d") X(A1D, "a1d") X(A2D, "a2d") X(CUBE, "cube") X(ACUBE, "acube") \
	X(2DMS, "2dms") X(A2DMS, "a2dms")

/* Rows, columns and, of products, what is added up. */
#define PTX_SHAPES(X) \
	X(M8N8, "m8n8") X(M8N8K4, "m8n8k4") X(M8N8K16, "m8n8k16") X(M16N8K4, "m16n8k4") X(M16N8K8, "m16n8k8") \
	X(M16N8K16, "m16n8k16") X(M16N8K32, "m16n8k32")

#define PTX_LAYOUTS(X) X(ROW, "row") X(COL, "col")

/* Plain modifiers: bits of instruction->flags. At most 64. */
#define PTX_FLAGS(X) \
	X(FTZ, "ftz") X(SAT, "sat") X(SATFINITE, "satfinite") X(APPROX, "approx") X(FULL, "full") X(LO, "lo") \
	X(HI, "hi") X(WIDE, "wide") X(CC, "cc") X(UNI, "uni") X(SYNC, "sync") X(ARRIVE, "arrive") X(RED, "red") \
	X(WARP, "warp") X(ALIGNED, "aligned") X(TO, "to") X(NC, "nc") X(CA, "ca") X(CG, "cg") X(CS, "cs") \
	X(LU, "lu") X(CV, "cv") X(WB, "wb") X(WT, "wt") X(L, "l") X(R, "r") X(CLAMP, "clamp") X(WRAP, "wrap") \
	X(SHIFTAMT, "shiftamt") X(SHIFT_7, "shr7") X(SHIFT_15, "shr15") X(PO, "po") X(NANQ, "NaN") \
	X(XORSIGN, "xorsign") X(ABSOLUTE, "abs") X(RELU, "relu") X(NOFTZ, "noftz") X(PACK, "pack") X(L1, "L1") \
	X(L2, "L2") X(HINT, "L2::cache_hint") X(EVICTION, "eviction") X(PREFETCH_SIZE, "prefetch") X(ZERO, "zero") \
	X(TRAP, "trap") X(P, "p") X(B, "b") X(G, "g") X(A, "a") X(LEVEL, "level") X(GRAD, "grad") X(BASE, "base") \
	X(UNIFIED, "unified") X(ASYNC, "async") X(COMMIT_GROUP, "commit_group") X(WAIT_GROUP, "wait_group") \
	X(WAIT_ALL, "wait_all") X(WAIT, "wait") X(PROXY, "proxy") X(NOINC, "noinc") X(OOB, "oob") X(TRANS, "trans")

/* Special registers. %tid, %ntid, %ctaid, %nctaid and the cluster ones have
 * lanes .x .y .z (.w); %envreg, %pm and the like a number. */
#define PTX_SPECIALS(X) \
	X(TID, "tid") X(NTID, "ntid") X(CTAID, "ctaid") X(NCTAID, "nctaid") X(LANEID, "laneid") \
	X(WARPID, "warpid") X(NWARPID, "nwarpid") X(SMID, "smid") X(NSMID, "nsmid") X(GRIDID, "gridid") \
	X(CLUSTERID, "clusterid") X(NCLUSTERID, "nclusterid") X(CLUSTER_CTAID, "cluster_ctaid") \
	X(CLUSTER_NCTAID, "cluster_nctaid") X(CLUSTER_CTARANK, "cluster_ctarank") \
	X(CLUSTER_NCTARANK, "cluster_nctarank") X(IS_EXPLICIT_CLUSTER, "is_explicit_cluster") \
	X(LANEMASK_EQ, "lanemask_eq") X(LANEMASK_LE, "lanemask_le") X(LANEMASK_LT, "lanemask_lt") \
	X(LANEMASK_GE, "lanemask_ge") X(LANEMASK_GT, "lanemask_gt") X(CLOCK, "clock") X(CLOCK_HI, "clock_hi") \
	X(CLOCK64, "clock64") X(GLOBALTIMER, "globaltimer") X(GLOBALTIMER_LO, "globaltimer_lo") \
	X(GLOBALTIMER_HI, "globaltimer_hi") X(TOTAL_SMEM_SIZE, "total_smem_size") \
	X(DYNAMIC_SMEM_SIZE, "dynamic_smem_size") X(AGGR_SMEM_SIZE, "aggr_smem_size") \
	X(CURRENT_GRAPH_EXEC, "current_graph_exec") X(RESERVED_SMEM_OFFSET_BEGIN, "reserved_smem_offset_begin") \
	X(RESERVED_SMEM_OFFSET_END, "reserved_smem_offset_end") X(RESERVED_SMEM_OFFSET_CAP, "reserved_smem_offset_cap") \
	X(ENVREG, "envreg") X(PM, "pm") X(PM64, "pm64") X(RESERVED_SMEM_OFFSET, "reserved_smem_offset_")

#endif
