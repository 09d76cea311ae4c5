// SPDX-License-Identifier: Apache-2.0
//
// All that clang has words for and the simulated GPU takes, once each. What comes out is of
// no use: scripts/make-ptx compiles it, and a test reads the text.

#define DEVICE __attribute__((device))
#define GLOBAL extern "C" __attribute__((global)) void

DEVICE char *volatile place;

// whatever a function wants
struct A {
	template <class T> DEVICE operator T() const { return *(T *)place; }
};

#define H (*(__fp16 *)place)

#define CALL(name, ...)                           \
	{                                         \
		auto r = __nvvm_##name(__VA_ARGS__); \
		*(decltype(r) *)place = r;        \
	}

GLOBAL registers()
{
	CALL(read_ptx_sreg_clock) CALL(read_ptx_sreg_clock64) CALL(read_ptx_sreg_ctaid_w) CALL(read_ptx_sreg_ctaid_x)
	CALL(read_ptx_sreg_ctaid_y) CALL(read_ptx_sreg_ctaid_z) CALL(read_ptx_sreg_globaltimer) CALL(read_ptx_sreg_gridid)
	CALL(read_ptx_sreg_laneid) CALL(read_ptx_sreg_lanemask_eq) CALL(read_ptx_sreg_lanemask_ge)
	CALL(read_ptx_sreg_lanemask_gt) CALL(read_ptx_sreg_lanemask_le) CALL(read_ptx_sreg_lanemask_lt)
	CALL(read_ptx_sreg_nctaid_w) CALL(read_ptx_sreg_nctaid_x) CALL(read_ptx_sreg_nctaid_y) CALL(read_ptx_sreg_nctaid_z)
	CALL(read_ptx_sreg_nsmid) CALL(read_ptx_sreg_ntid_w) CALL(read_ptx_sreg_ntid_x) CALL(read_ptx_sreg_ntid_y)
	CALL(read_ptx_sreg_ntid_z) CALL(read_ptx_sreg_nwarpid) CALL(read_ptx_sreg_pm0) CALL(read_ptx_sreg_pm1)
	CALL(read_ptx_sreg_pm2) CALL(read_ptx_sreg_pm3) CALL(read_ptx_sreg_smid) CALL(read_ptx_sreg_tid_w)
	CALL(read_ptx_sreg_tid_x) CALL(read_ptx_sreg_tid_y) CALL(read_ptx_sreg_tid_z) CALL(read_ptx_sreg_warpid)
}

GLOBAL loads()
{
	CALL(ldg_c, A()) CALL(ldg_c2, A()) CALL(ldg_c4, A()) CALL(ldg_d, A()) CALL(ldg_d2, A()) CALL(ldg_f, A())
	CALL(ldg_f2, A()) CALL(ldg_f4, A()) CALL(ldg_h, A()) CALL(ldg_h2, A()) CALL(ldg_i, A()) CALL(ldg_i2, A())
	CALL(ldg_i4, A()) CALL(ldg_l, A()) CALL(ldg_l2, A()) CALL(ldg_ll, A()) CALL(ldg_ll2, A()) CALL(ldg_s, A())
	CALL(ldg_s2, A()) CALL(ldg_s4, A()) CALL(ldg_sc, A()) CALL(ldg_sc2, A()) CALL(ldg_sc4, A()) CALL(ldg_uc, A())
	CALL(ldg_uc2, A()) CALL(ldg_uc4, A()) CALL(ldg_ui, A()) CALL(ldg_ui2, A()) CALL(ldg_ui4, A()) CALL(ldg_ul, A())
	CALL(ldg_ul2, A()) CALL(ldg_ull, A()) CALL(ldg_ull2, A()) CALL(ldg_us, A()) CALL(ldg_us2, A()) CALL(ldg_us4, A())
	CALL(ldu_c, A()) CALL(ldu_c2, A()) CALL(ldu_c4, A()) CALL(ldu_d, A()) CALL(ldu_d2, A()) CALL(ldu_f, A())
	CALL(ldu_f2, A()) CALL(ldu_f4, A()) CALL(ldu_h, A()) CALL(ldu_h2, A()) CALL(ldu_i, A()) CALL(ldu_i2, A())
	CALL(ldu_i4, A()) CALL(ldu_l, A()) CALL(ldu_l2, A()) CALL(ldu_ll, A()) CALL(ldu_ll2, A()) CALL(ldu_s, A())
	CALL(ldu_s2, A()) CALL(ldu_s4, A()) CALL(ldu_sc, A()) CALL(ldu_sc2, A()) CALL(ldu_sc4, A()) CALL(ldu_uc, A())
	CALL(ldu_uc2, A()) CALL(ldu_uc4, A()) CALL(ldu_ui, A()) CALL(ldu_ui2, A()) CALL(ldu_ui4, A()) CALL(ldu_ul, A())
	CALL(ldu_ul2, A()) CALL(ldu_ull, A()) CALL(ldu_ull2, A()) CALL(ldu_us, A()) CALL(ldu_us2, A()) CALL(ldu_us4, A())
}

GLOBAL conversions()
{
	CALL(bitcast_d2ll, A()) CALL(bitcast_f2i, A()) CALL(bitcast_i2f, A()) CALL(bitcast_ll2d, A()) CALL(d2f_rm, A())
	CALL(d2f_rm_ftz, A()) CALL(d2f_rn, A()) CALL(d2f_rn_ftz, A()) CALL(d2f_rp, A()) CALL(d2f_rp_ftz, A()) CALL(d2f_rz, A())
	CALL(d2f_rz_ftz, A()) CALL(d2i_hi, A()) CALL(d2i_lo, A()) CALL(d2i_rm, A()) CALL(d2i_rn, A()) CALL(d2i_rp, A())
	CALL(d2i_rz, A()) CALL(d2ll_rm, A()) CALL(d2ll_rn, A()) CALL(d2ll_rp, A()) CALL(d2ll_rz, A()) CALL(d2ui_rm, A())
	CALL(d2ui_rn, A()) CALL(d2ui_rp, A()) CALL(d2ui_rz, A()) CALL(d2ull_rm, A()) CALL(d2ull_rn, A()) CALL(d2ull_rp, A())
	CALL(d2ull_rz, A()) CALL(f2bf16_rn, A()) CALL(f2bf16_rn_relu, A()) CALL(f2bf16_rz, A()) CALL(f2bf16_rz_relu, A())
	CALL(f2h_rn, A()) CALL(f2h_rn_ftz, A()) CALL(f2i_rm, A()) CALL(f2i_rm_ftz, A()) CALL(f2i_rn, A()) CALL(f2i_rn_ftz, A())
	CALL(f2i_rp, A()) CALL(f2i_rp_ftz, A()) CALL(f2i_rz, A()) CALL(f2i_rz_ftz, A()) CALL(f2ll_rm, A())
	CALL(f2ll_rm_ftz, A()) CALL(f2ll_rn, A()) CALL(f2ll_rn_ftz, A()) CALL(f2ll_rp, A()) CALL(f2ll_rp_ftz, A())
	CALL(f2ll_rz, A()) CALL(f2ll_rz_ftz, A()) CALL(f2tf32_rna, A()) CALL(f2ui_rm, A()) CALL(f2ui_rm_ftz, A())
	CALL(f2ui_rn, A()) CALL(f2ui_rn_ftz, A()) CALL(f2ui_rp, A()) CALL(f2ui_rp_ftz, A()) CALL(f2ui_rz, A())
	CALL(f2ui_rz_ftz, A()) CALL(f2ull_rm, A()) CALL(f2ull_rm_ftz, A()) CALL(f2ull_rn, A()) CALL(f2ull_rn_ftz, A())
	CALL(f2ull_rp, A()) CALL(f2ull_rp_ftz, A()) CALL(f2ull_rz, A()) CALL(f2ull_rz_ftz, A()) CALL(ff2bf16x2_rn, A(), A())
	CALL(ff2bf16x2_rn_relu, A(), A()) CALL(ff2bf16x2_rz, A(), A()) CALL(ff2bf16x2_rz_relu, A(), A())
	CALL(ff2f16x2_rn, A(), A()) CALL(ff2f16x2_rn_relu, A(), A()) CALL(ff2f16x2_rz, A(), A())
	CALL(ff2f16x2_rz_relu, A(), A()) CALL(i2d_rm, A()) CALL(i2d_rn, A()) CALL(i2d_rp, A()) CALL(i2d_rz, A())
	CALL(i2f_rm, A()) CALL(i2f_rn, A()) CALL(i2f_rp, A()) CALL(i2f_rz, A()) CALL(ll2d_rm, A()) CALL(ll2d_rn, A())
	CALL(ll2d_rp, A()) CALL(ll2d_rz, A()) CALL(ll2f_rm, A()) CALL(ll2f_rn, A()) CALL(ll2f_rp, A()) CALL(ll2f_rz, A())
	CALL(lohi_i2d, A(), A()) CALL(ui2d_rm, A()) CALL(ui2d_rn, A()) CALL(ui2d_rp, A()) CALL(ui2d_rz, A()) CALL(ui2f_rm, A())
	CALL(ui2f_rn, A()) CALL(ui2f_rp, A()) CALL(ui2f_rz, A()) CALL(ull2d_rm, A()) CALL(ull2d_rn, A()) CALL(ull2d_rp, A())
	CALL(ull2d_rz, A()) CALL(ull2f_rm, A()) CALL(ull2f_rn, A()) CALL(ull2f_rp, A()) CALL(ull2f_rz, A())
}

GLOBAL arithmetic()
{
	CALL(add_rm_d, A(), A()) CALL(add_rm_f, A(), A()) CALL(add_rm_ftz_f, A(), A()) CALL(add_rn_d, A(), A())
	CALL(add_rn_f, A(), A()) CALL(add_rn_ftz_f, A(), A()) CALL(add_rp_d, A(), A()) CALL(add_rp_f, A(), A())
	CALL(add_rp_ftz_f, A(), A()) CALL(add_rz_d, A(), A()) CALL(add_rz_f, A(), A()) CALL(add_rz_ftz_f, A(), A())
	CALL(div_approx_f, A(), A()) CALL(div_approx_ftz_f, A(), A()) CALL(div_rm_d, A(), A()) CALL(div_rm_f, A(), A())
	CALL(div_rm_ftz_f, A(), A()) CALL(div_rn_d, A(), A()) CALL(div_rn_f, A(), A()) CALL(div_rn_ftz_f, A(), A())
	CALL(div_rp_d, A(), A()) CALL(div_rp_f, A(), A()) CALL(div_rp_ftz_f, A(), A()) CALL(div_rz_d, A(), A())
	CALL(div_rz_f, A(), A()) CALL(div_rz_ftz_f, A(), A()) CALL(mul24_i, A(), A()) CALL(mul24_ui, A(), A())
	CALL(mul_rm_d, A(), A()) CALL(mul_rm_f, A(), A()) CALL(mul_rm_ftz_f, A(), A()) CALL(mul_rn_d, A(), A())
	CALL(mul_rn_f, A(), A()) CALL(mul_rn_ftz_f, A(), A()) CALL(mul_rp_d, A(), A()) CALL(mul_rp_f, A(), A())
	CALL(mul_rp_ftz_f, A(), A()) CALL(mul_rz_d, A(), A()) CALL(mul_rz_f, A(), A()) CALL(mul_rz_ftz_f, A(), A())
	CALL(mulhi_i, A(), A()) CALL(mulhi_ll, A(), A()) CALL(mulhi_ui, A(), A()) CALL(mulhi_ull, A(), A())
	CALL(prmt, A(), A(), A()) CALL(rcp_approx_ftz_d, A()) CALL(rcp_approx_ftz_f, A()) CALL(rcp_rm_d, A())
	CALL(rcp_rm_f, A()) CALL(rcp_rm_ftz_f, A()) CALL(rcp_rn_d, A()) CALL(rcp_rn_f, A()) CALL(rcp_rn_ftz_f, A())
	CALL(rcp_rp_d, A()) CALL(rcp_rp_f, A()) CALL(rcp_rp_ftz_f, A()) CALL(rcp_rz_d, A()) CALL(rcp_rz_f, A())
	CALL(rcp_rz_ftz_f, A()) CALL(rsqrt_approx_d, A()) CALL(rsqrt_approx_f, A()) CALL(rsqrt_approx_ftz_f, A())
	CALL(sad_i, A(), A(), A()) CALL(sad_ui, A(), A(), A()) CALL(sqrt_approx_f, A()) CALL(sqrt_approx_ftz_f, A())
	CALL(sqrt_rm_d, A()) CALL(sqrt_rm_f, A()) CALL(sqrt_rm_ftz_f, A()) CALL(sqrt_rn_d, A()) CALL(sqrt_rn_f, A())
	CALL(sqrt_rn_ftz_f, A()) CALL(sqrt_rp_d, A()) CALL(sqrt_rp_f, A()) CALL(sqrt_rp_ftz_f, A()) CALL(sqrt_rz_d, A())
	CALL(sqrt_rz_f, A()) CALL(sqrt_rz_ftz_f, A())
}

GLOBAL sums()
{
	CALL(fma_rm_d, A(), A(), A()) CALL(fma_rm_f, A(), A(), A()) CALL(fma_rm_ftz_f, A(), A(), A())
	CALL(fma_rn_bf16, A(), A(), A()) CALL(fma_rn_bf16x2, A(), A(), A()) CALL(fma_rn_d, A(), A(), A())
	CALL(fma_rn_f, A(), A(), A()) CALL(fma_rn_f16, H, H, H) CALL(fma_rn_f16x2, A(), A(), A())
	CALL(fma_rn_ftz_f, A(), A(), A()) CALL(fma_rn_ftz_f16, H, H, H) CALL(fma_rn_ftz_f16x2, A(), A(), A())
	CALL(fma_rn_ftz_relu_f16, H, H, H) CALL(fma_rn_ftz_relu_f16x2, A(), A(), A()) CALL(fma_rn_ftz_sat_f16, H, H, H)
	CALL(fma_rn_ftz_sat_f16x2, A(), A(), A()) CALL(fma_rn_relu_bf16, A(), A(), A()) CALL(fma_rn_relu_bf16x2, A(), A(), A())
	CALL(fma_rn_relu_f16, H, H, H) CALL(fma_rn_relu_f16x2, A(), A(), A()) CALL(fma_rn_sat_f16, H, H, H)
	CALL(fma_rn_sat_f16x2, A(), A(), A()) CALL(fma_rp_d, A(), A(), A()) CALL(fma_rp_f, A(), A(), A())
	CALL(fma_rp_ftz_f, A(), A(), A()) CALL(fma_rz_d, A(), A(), A()) CALL(fma_rz_f, A(), A(), A())
	CALL(fma_rz_ftz_f, A(), A(), A())
}

GLOBAL extremes()
{
	CALL(fmax_bf16, A(), A()) CALL(fmax_bf16x2, A(), A()) CALL(fmax_d, A(), A()) CALL(fmax_f, A(), A())
	CALL(fmax_f16, H, H) CALL(fmax_f16x2, A(), A()) CALL(fmax_ftz_f, A(), A()) CALL(fmax_ftz_f16, H, H)
	CALL(fmax_ftz_f16x2, A(), A()) CALL(fmax_ftz_nan_f, A(), A()) CALL(fmax_ftz_nan_f16, H, H)
	CALL(fmax_ftz_nan_f16x2, A(), A()) CALL(fmax_ftz_nan_xorsign_abs_f, A(), A()) CALL(fmax_ftz_nan_xorsign_abs_f16, H, H)
	CALL(fmax_ftz_nan_xorsign_abs_f16x2, A(), A()) CALL(fmax_ftz_xorsign_abs_f, A(), A())
	CALL(fmax_ftz_xorsign_abs_f16, H, H) CALL(fmax_ftz_xorsign_abs_f16x2, A(), A()) CALL(fmax_nan_bf16, A(), A())
	CALL(fmax_nan_bf16x2, A(), A()) CALL(fmax_nan_f, A(), A()) CALL(fmax_nan_f16, H, H) CALL(fmax_nan_f16x2, A(), A())
	CALL(fmax_nan_xorsign_abs_bf16, A(), A()) CALL(fmax_nan_xorsign_abs_bf16x2, A(), A())
	CALL(fmax_nan_xorsign_abs_f, A(), A()) CALL(fmax_nan_xorsign_abs_f16, H, H) CALL(fmax_nan_xorsign_abs_f16x2, A(), A())
	CALL(fmax_xorsign_abs_bf16, A(), A()) CALL(fmax_xorsign_abs_bf16x2, A(), A()) CALL(fmax_xorsign_abs_f, A(), A())
	CALL(fmax_xorsign_abs_f16, H, H) CALL(fmax_xorsign_abs_f16x2, A(), A()) CALL(fmin_bf16, A(), A())
	CALL(fmin_bf16x2, A(), A()) CALL(fmin_d, A(), A()) CALL(fmin_f, A(), A()) CALL(fmin_f16, H, H)
	CALL(fmin_f16x2, A(), A()) CALL(fmin_ftz_f, A(), A()) CALL(fmin_ftz_f16, H, H) CALL(fmin_ftz_f16x2, A(), A())
	CALL(fmin_ftz_nan_f, A(), A()) CALL(fmin_ftz_nan_f16, H, H) CALL(fmin_ftz_nan_f16x2, A(), A())
	CALL(fmin_ftz_nan_xorsign_abs_f, A(), A()) CALL(fmin_ftz_nan_xorsign_abs_f16, H, H)
	CALL(fmin_ftz_nan_xorsign_abs_f16x2, A(), A()) CALL(fmin_ftz_xorsign_abs_f, A(), A())
	CALL(fmin_ftz_xorsign_abs_f16, H, H) CALL(fmin_ftz_xorsign_abs_f16x2, A(), A()) CALL(fmin_nan_bf16, A(), A())
	CALL(fmin_nan_bf16x2, A(), A()) CALL(fmin_nan_f, A(), A()) CALL(fmin_nan_f16, H, H) CALL(fmin_nan_f16x2, A(), A())
	CALL(fmin_nan_xorsign_abs_bf16, A(), A()) CALL(fmin_nan_xorsign_abs_bf16x2, A(), A())
	CALL(fmin_nan_xorsign_abs_f, A(), A()) CALL(fmin_nan_xorsign_abs_f16, H, H) CALL(fmin_nan_xorsign_abs_f16x2, A(), A())
	CALL(fmin_xorsign_abs_bf16, A(), A()) CALL(fmin_xorsign_abs_bf16x2, A(), A()) CALL(fmin_xorsign_abs_f, A(), A())
	CALL(fmin_xorsign_abs_f16, H, H) CALL(fmin_xorsign_abs_f16x2, A(), A())
}

GLOBAL functions()
{
	CALL(abs_bf16, A()) CALL(abs_bf16x2, A()) CALL(ceil_d, A()) CALL(ceil_f, A()) CALL(ceil_ftz_f, A())
	CALL(cos_approx_f, A()) CALL(cos_approx_ftz_f, A()) CALL(ex2_approx_f, A()) CALL(ex2_approx_f16, H)
	CALL(ex2_approx_f16x2, A()) CALL(ex2_approx_ftz_f, A()) CALL(fabs_d, A()) CALL(fabs_f, A()) CALL(fabs_ftz_f, A())
	CALL(floor_d, A()) CALL(floor_f, A()) CALL(floor_ftz_f, A()) CALL(isspacep_const, A()) CALL(isspacep_global, A())
	CALL(isspacep_local, A()) CALL(isspacep_shared, A()) CALL(lg2_approx_f, A()) CALL(lg2_approx_ftz_f, A())
	CALL(neg_bf16, A()) CALL(neg_bf16x2, A()) CALL(round_d, A()) CALL(round_f, A()) CALL(round_ftz_f, A())
	CALL(saturate_d, A()) CALL(saturate_f, A()) CALL(saturate_ftz_f, A()) CALL(sin_approx_f, A())
	CALL(sin_approx_ftz_f, A()) CALL(trunc_d, A()) CALL(trunc_f, A()) CALL(trunc_ftz_f, A())
}

GLOBAL lanes()
{
	CALL(activemask) CALL(bar0_and, A()) CALL(bar0_or, A()) CALL(bar0_popc, A()) CALL(fns, A(), A(), A())
	CALL(match_all_sync_i32p, A(), A(), A()) CALL(match_all_sync_i64p, A(), A(), A()) CALL(match_any_sync_i32, A(), A())
	CALL(match_any_sync_i64, A(), A()) CALL(redux_sync_add, A(), A()) CALL(redux_sync_and, A(), A())
	CALL(redux_sync_max, A(), A()) CALL(redux_sync_min, A(), A()) CALL(redux_sync_or, A(), A())
	CALL(redux_sync_umax, A(), A()) CALL(redux_sync_umin, A(), A()) CALL(redux_sync_xor, A(), A())
	CALL(shfl_sync_bfly_f32, A(), A(), A(), A()) CALL(shfl_sync_bfly_i32, A(), A(), A(), A())
	CALL(shfl_sync_down_f32, A(), A(), A(), A()) CALL(shfl_sync_down_i32, A(), A(), A(), A())
	CALL(shfl_sync_idx_f32, A(), A(), A(), A()) CALL(shfl_sync_idx_i32, A(), A(), A(), A())
	CALL(shfl_sync_up_f32, A(), A(), A(), A()) CALL(shfl_sync_up_i32, A(), A(), A(), A()) CALL(vote_all_sync, A(), A())
	CALL(vote_any_sync, A(), A()) CALL(vote_ballot_sync, A(), A()) CALL(vote_uni_sync, A(), A())
}

GLOBAL atoms()
{
	CALL(atom_add_gen_d, A(), A()) CALL(atom_add_gen_f, A(), A()) CALL(atom_add_gen_i, A(), A())
	CALL(atom_add_gen_l, A(), A()) CALL(atom_add_gen_ll, A(), A()) CALL(atom_and_gen_i, A(), A())
	CALL(atom_and_gen_l, A(), A()) CALL(atom_and_gen_ll, A(), A()) CALL(atom_cas_gen_i, A(), A(), A())
	CALL(atom_cas_gen_l, A(), A(), A()) CALL(atom_cas_gen_ll, A(), A(), A()) CALL(atom_cta_add_gen_d, A(), A())
	CALL(atom_cta_add_gen_f, A(), A()) CALL(atom_cta_add_gen_i, A(), A()) CALL(atom_cta_add_gen_l, A(), A())
	CALL(atom_cta_add_gen_ll, A(), A()) CALL(atom_cta_and_gen_i, A(), A()) CALL(atom_cta_and_gen_l, A(), A())
	CALL(atom_cta_and_gen_ll, A(), A()) CALL(atom_cta_cas_gen_i, A(), A(), A()) CALL(atom_cta_cas_gen_l, A(), A(), A())
	CALL(atom_cta_cas_gen_ll, A(), A(), A()) CALL(atom_cta_dec_gen_ui, A(), A()) CALL(atom_cta_inc_gen_ui, A(), A())
	CALL(atom_cta_max_gen_i, A(), A()) CALL(atom_cta_max_gen_l, A(), A()) CALL(atom_cta_max_gen_ll, A(), A())
	CALL(atom_cta_max_gen_ui, A(), A()) CALL(atom_cta_max_gen_ul, A(), A()) CALL(atom_cta_max_gen_ull, A(), A())
	CALL(atom_cta_min_gen_i, A(), A()) CALL(atom_cta_min_gen_l, A(), A()) CALL(atom_cta_min_gen_ll, A(), A())
	CALL(atom_cta_min_gen_ui, A(), A()) CALL(atom_cta_min_gen_ul, A(), A()) CALL(atom_cta_min_gen_ull, A(), A())
	CALL(atom_cta_or_gen_i, A(), A()) CALL(atom_cta_or_gen_l, A(), A()) CALL(atom_cta_or_gen_ll, A(), A())
	CALL(atom_cta_xchg_gen_i, A(), A()) CALL(atom_cta_xchg_gen_l, A(), A()) CALL(atom_cta_xchg_gen_ll, A(), A())
	CALL(atom_cta_xor_gen_i, A(), A()) CALL(atom_cta_xor_gen_l, A(), A()) CALL(atom_cta_xor_gen_ll, A(), A())
	CALL(atom_dec_gen_ui, A(), A()) CALL(atom_inc_gen_ui, A(), A()) CALL(atom_max_gen_i, A(), A())
	CALL(atom_max_gen_l, A(), A()) CALL(atom_max_gen_ll, A(), A()) CALL(atom_max_gen_ui, A(), A())
	CALL(atom_max_gen_ul, A(), A()) CALL(atom_max_gen_ull, A(), A()) CALL(atom_min_gen_i, A(), A())
	CALL(atom_min_gen_l, A(), A()) CALL(atom_min_gen_ll, A(), A()) CALL(atom_min_gen_ui, A(), A())
	CALL(atom_min_gen_ul, A(), A()) CALL(atom_min_gen_ull, A(), A()) CALL(atom_or_gen_i, A(), A())
	CALL(atom_or_gen_l, A(), A()) CALL(atom_or_gen_ll, A(), A()) CALL(atom_sub_gen_i, A(), A())
	CALL(atom_sub_gen_l, A(), A()) CALL(atom_sub_gen_ll, A(), A()) CALL(atom_sys_add_gen_d, A(), A())
	CALL(atom_sys_add_gen_f, A(), A()) CALL(atom_sys_add_gen_i, A(), A()) CALL(atom_sys_add_gen_l, A(), A())
	CALL(atom_sys_add_gen_ll, A(), A()) CALL(atom_sys_and_gen_i, A(), A()) CALL(atom_sys_and_gen_l, A(), A())
	CALL(atom_sys_and_gen_ll, A(), A()) CALL(atom_sys_cas_gen_i, A(), A(), A()) CALL(atom_sys_cas_gen_l, A(), A(), A())
	CALL(atom_sys_cas_gen_ll, A(), A(), A()) CALL(atom_sys_dec_gen_ui, A(), A()) CALL(atom_sys_inc_gen_ui, A(), A())
	CALL(atom_sys_max_gen_i, A(), A()) CALL(atom_sys_max_gen_l, A(), A()) CALL(atom_sys_max_gen_ll, A(), A())
	CALL(atom_sys_max_gen_ui, A(), A()) CALL(atom_sys_max_gen_ul, A(), A()) CALL(atom_sys_max_gen_ull, A(), A())
	CALL(atom_sys_min_gen_i, A(), A()) CALL(atom_sys_min_gen_l, A(), A()) CALL(atom_sys_min_gen_ll, A(), A())
	CALL(atom_sys_min_gen_ui, A(), A()) CALL(atom_sys_min_gen_ul, A(), A()) CALL(atom_sys_min_gen_ull, A(), A())
	CALL(atom_sys_or_gen_i, A(), A()) CALL(atom_sys_or_gen_l, A(), A()) CALL(atom_sys_or_gen_ll, A(), A())
	CALL(atom_sys_xchg_gen_i, A(), A()) CALL(atom_sys_xchg_gen_l, A(), A()) CALL(atom_sys_xchg_gen_ll, A(), A())
	CALL(atom_sys_xor_gen_i, A(), A()) CALL(atom_sys_xor_gen_l, A(), A()) CALL(atom_sys_xor_gen_ll, A(), A())
	CALL(atom_xchg_gen_i, A(), A()) CALL(atom_xchg_gen_l, A(), A()) CALL(atom_xchg_gen_ll, A(), A())
	CALL(atom_xor_gen_i, A(), A()) CALL(atom_xor_gen_l, A(), A()) CALL(atom_xor_gen_ll, A(), A())
}

GLOBAL effects()
{
	__nvvm_bar_sync(0);
	__nvvm_bar_warp_sync(A());
	__nvvm_barrier_sync(A());
	__nvvm_barrier_sync_cnt(A(), A());
	__nvvm_cp_async_ca_shared_global_16(A(), A());
	__nvvm_cp_async_ca_shared_global_4(A(), A());
	__nvvm_cp_async_ca_shared_global_8(A(), A());
	__nvvm_cp_async_cg_shared_global_16(A(), A());
	__nvvm_cp_async_commit_group();
	__nvvm_cp_async_wait_all();
	__nvvm_cp_async_wait_group(1);
	__nvvm_membar_cta();
	__nvvm_membar_gl();
	__nvvm_membar_sys();
	__nvvm_nanosleep(A());
	__nvvm_exit();
}
