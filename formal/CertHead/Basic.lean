/-!
# Small arithmetic facts

About `Nat` and `Int`, needed by several modules and not in core Lean in this form.
-/

namespace CertHead

theorem log2_le_log2 {m n : Nat} (h : m ≤ n) : m.log2 ≤ n.log2 := by
  by_cases hm : m = 0
  · rw [hm, Nat.log2_zero]; exact Nat.zero_le _
  · rw [Nat.le_log2 (by omega)]
    exact Nat.le_trans (Nat.log2_self_le hm) h

theorem two_pow_dvd_two_pow {a b : Nat} (h : a ≤ b) : ((2 ^ a : Nat) : Int) ∣ ((2 ^ b : Nat) : Int) :=
  Int.natCast_dvd_natCast.2 (Nat.pow_dvd_pow 2 h)

theorem two_pow_cast_pos (e : Nat) : (0 : Int) < ((2 ^ e : Nat) : Int) :=
  Int.natCast_pos.2 (Nat.two_pow_pos e)

theorem two_pow_le_two_pow {a b : Nat} (h : a ≤ b) : 2 ^ a ≤ 2 ^ b :=
  Nat.pow_le_pow_right (by omega) h

theorem log2_mul_two_pow {n : Nat} (hn : n ≠ 0) (k : Nat) : (n * 2 ^ k).log2 = n.log2 + k := by
  have hk := Nat.two_pow_pos k
  have hne : n * 2 ^ k ≠ 0 := Nat.ne_of_gt (Nat.mul_pos (Nat.pos_of_ne_zero hn) hk)
  refine (Nat.log2_eq_iff hne).2 ⟨?_, ?_⟩
  · rw [Nat.pow_add]
    exact Nat.mul_le_mul_right _ (Nat.log2_self_le hn)
  · rw [show n.log2 + k + 1 = n.log2 + 1 + k by omega, Nat.pow_add]
    exact Nat.mul_lt_mul_of_pos_right Nat.lt_log2_self hk

theorem dvd_of_mul_dvd_mul_right {m n k : Nat} (hk : 0 < k) (h : m * k ∣ n * k) : m ∣ n := by
  obtain ⟨c, hc⟩ := h
  refine ⟨c, Nat.eq_of_mul_eq_mul_right hk ?_⟩
  rw [hc]
  ac_rfl

/-- `x / q * q` is `x` less its remainder. -/
theorem floor_mul_eq (x q : Int) : x / q * q = x - x % q := by
  have h := Int.mul_ediv_add_emod x q
  rw [Int.mul_comm] at h
  omega

theorem floor_mul_le {q : Int} (hq : 0 < q) (x : Int) : x / q * q ≤ x := by
  have h := Int.emod_nonneg x (Int.ne_of_gt hq)
  rw [floor_mul_eq]
  omega

theorem lt_floor_mul_add {q : Int} (hq : 0 < q) (x : Int) : x < x / q * q + q := by
  have h := Int.emod_lt_of_pos x hq
  rw [floor_mul_eq]
  omega

/-- `x / q * q` is the largest multiple of `q` that is at most `x`. -/
theorem le_floor_mul_of_dvd {q x z : Int} (hq : 0 < q) (hz : q ∣ z) (hzx : z ≤ x) : z ≤ x / q * q := by
  obtain ⟨k, rfl⟩ := hz
  rw [Int.mul_comm q k] at hzx ⊢
  exact Int.mul_le_mul_of_nonneg_right ((Int.le_ediv_iff_mul_le hq).2 hzx) (Int.le_of_lt hq)

theorem floor_mul_of_dvd {q x : Int} (h : q ∣ x) : x / q * q = x := by
  rw [floor_mul_eq, Int.emod_eq_zero_of_dvd h, Int.sub_zero]

/-- A multiple of `q` strictly above `z`, itself a multiple, is at least one `q` above. -/
theorem add_le_of_dvd_of_lt {q z w : Int} (hz : q ∣ z) (hw : q ∣ w) (h : z < w) : z + q ≤ w := by
  have hd : q ∣ w - z := Int.dvd_sub hw hz
  have := Int.le_of_dvd (by omega) hd
  omega

end CertHead
