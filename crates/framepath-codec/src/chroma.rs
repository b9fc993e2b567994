// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interleaving of planar rows, and moving of 10-bit samples from the low to the high end of 16
//! bits.
//!
//! Each function has a scalar version that defines its result. The vector functions compute the
//! same result for the whole vectors of a row, and leave the rest to the scalar version. Samples
//! are bytes here, 16-bit samples little-endian, so that rows may start at any address.
//!
//! If the machine has AVX2 and the written row begins at a multiple of 32 bytes, the stores of its
//! whole vectors bypass the caches. A picture is far larger than the caches, so plain stores would
//! first read the old contents from memory and evict the decoder's data.

use std::cell::Cell;

/// Writer of rows. Samples are cells and never `&[u8]`, because another process may write its own
/// slots at any time. Other threads may read the rows after this value was dropped.
pub(crate) struct Rows(());

impl Rows {
    /// Creates a writer.
    pub(crate) fn new() -> Rows {
        Rows(())
    }

    /// Writes `dst` = u0 v0 u1 v1 ... of 8-bit samples.
    ///
    /// # Panics
    /// `u` and `v` differ in length, or `dst` is not twice as long.
    pub(crate) fn interleave8(&mut self, u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) {
        check(u, v, dst);
        let done = vector::interleave8(u, v, dst);
        scalar::interleave8(&u[done..], &v[done..], &dst[2 * done..]);
    }

    /// Writes `dst` = u0 v0 u1 v1 ... of 16-bit samples, each shifted left by six bits, as P010
    /// stores 10-bit chroma.
    ///
    /// # Panics
    /// `u` and `v` differ in length or have incomplete samples, or `dst` is not twice as long.
    pub(crate) fn interleave10(&mut self, u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) {
        check(u, v, dst);
        assert!(u.len() % 2 == 0, "{} bytes are not whole samples", u.len());
        let done = vector::interleave10(u, v, dst);
        scalar::interleave10(&u[done..], &v[done..], &dst[2 * done..]);
    }

    /// Writes `dst` = 16-bit samples of `src`, each shifted left by six bits, as P010 stores
    /// 10-bit luma.
    ///
    /// # Panics
    /// The lengths differ, or a sample is incomplete.
    pub(crate) fn raise10(&mut self, src: &[Cell<u8>], dst: &[Cell<u8>]) {
        assert!(src.len() == dst.len() && src.len() % 2 == 0, "{} bytes into {}", src.len(), dst.len());
        let done = vector::raise10(src, dst);
        scalar::raise10(&src[done..], &dst[done..]);
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        vector::fence();
    }
}

/// Returns the address of the row's first byte. Cells may be written through shared references.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn first(row: &[Cell<u8>]) -> *mut u8 {
    row.as_ptr().cast::<u8>().cast_mut()
}

fn check(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) {
    assert!(
        u.len() == v.len() && dst.len() == 2 * u.len(),
        "{} and {} bytes into {}",
        u.len(),
        v.len(),
        dst.len()
    );
}

/// Scalar versions of the vector functions. They define the result, and convert the rest of a
/// row.
mod scalar {
    use std::cell::Cell;

    pub(super) fn interleave8(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) {
        for ((pair, u), v) in dst.chunks_exact(2).zip(u).zip(v) {
            pair[0].set(u.get());
            pair[1].set(v.get());
        }
    }

    pub(super) fn interleave10(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) {
        for ((four, u), v) in dst.chunks_exact(4).zip(u.chunks_exact(2)).zip(v.chunks_exact(2)) {
            widen(u, &four[..2]);
            widen(v, &four[2..]);
        }
    }

    pub(super) fn raise10(src: &[Cell<u8>], dst: &[Cell<u8>]) {
        for (dst, src) in dst.chunks_exact(2).zip(src.chunks_exact(2)) {
            widen(src, dst);
        }
    }

    fn widen(sample: &[Cell<u8>], dst: &[Cell<u8>]) {
        let [low, high] = (u16::from_le_bytes([sample[0].get(), sample[1].get()]) << 6).to_le_bytes();
        dst[0].set(low);
        dst[1].set(high);
    }
}

#[cfg(target_arch = "x86_64")]
mod vector {
    //! Each conversion returns the number of bytes of `u` (or `src`) that it converted: whole
    //! vectors only.

    use std::arch::is_x86_feature_detected;
    use std::arch::x86_64::*;
    use std::cell::Cell;

    use super::first;

    pub(super) fn interleave8(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            unsafe { interleave8_avx2(u, v, dst) }
        } else {
            interleave8_sse2(u, v, dst)
        }
    }

    pub(super) fn interleave10(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            unsafe { interleave10_avx2(u, v, dst) }
        } else {
            interleave10_sse2(u, v, dst)
        }
    }

    pub(super) fn raise10(src: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            unsafe { raise10_avx2(src, dst) }
        } else {
            raise10_sse2(src, dst)
        }
    }

    /// Orders the stores that bypass the caches before later stores of this thread.
    pub(super) fn fence() {
        // SAFETY: every x86_64 has SSE.
        unsafe { _mm_sfence() }
    }

    /// Does the work of [`interleave8`] with AVX2. Returns the number of converted bytes of `u`, a
    /// multiple of 32.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn interleave8_avx2(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = u.len().min(v.len()).min(dst.len() / 2) / 32 * 32;
        let dst = first(dst);
        let past_caches = dst as usize % 32 == 0;
        for at in (0..whole).step_by(32) {
            // SAFETY: at + 32 <= whole, so 32 bytes are readable in both sources and 64 writable
            // at 2 * at, aligned if `past_caches` is true.
            unsafe {
                let u = _mm256_loadu_si256(u.as_ptr().add(at).cast());
                let v = _mm256_loadu_si256(v.as_ptr().add(at).cast());
                let (low, high) = (_mm256_unpacklo_epi8(u, v), _mm256_unpackhi_epi8(u, v));
                store_pairs(low, high, dst.add(2 * at), past_caches);
            }
        }
        whole
    }

    /// Does the work of [`interleave10`] with AVX2. Returns the number of converted bytes of `u`, a
    /// multiple of 32.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn interleave10_avx2(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = u.len().min(v.len()).min(dst.len() / 2) / 32 * 32;
        let dst = first(dst);
        let past_caches = dst as usize % 32 == 0;
        for at in (0..whole).step_by(32) {
            // SAFETY: as in `interleave8_avx2`.
            unsafe {
                let u = _mm256_slli_epi16::<6>(_mm256_loadu_si256(u.as_ptr().add(at).cast()));
                let v = _mm256_slli_epi16::<6>(_mm256_loadu_si256(v.as_ptr().add(at).cast()));
                let (low, high) = (_mm256_unpacklo_epi16(u, v), _mm256_unpackhi_epi16(u, v));
                store_pairs(low, high, dst.add(2 * at), past_caches);
            }
        }
        whole
    }

    /// Stores the unpacked samples `low` and `high` (64 bytes) at `dst` in memory order, past the
    /// caches if `past_caches` is true.
    ///
    /// # Safety
    /// The CPU has AVX2, and 64 bytes are writable at `dst`, which is a multiple of 32 for stores
    /// that bypass the caches.
    #[target_feature(enable = "avx2")]
    unsafe fn store_pairs(low: __m256i, high: __m256i, dst: *mut u8, past_caches: bool) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            store(_mm256_permute2x128_si256::<0x20>(low, high), dst, past_caches);
            store(_mm256_permute2x128_si256::<0x31>(low, high), dst.add(32), past_caches);
        }
    }

    /// Stores 32 bytes at `dst`, past the caches if `past_caches` is true.
    ///
    /// # Safety
    /// As for `store_pairs`, with 32 bytes.
    #[target_feature(enable = "avx2")]
    unsafe fn store(value: __m256i, dst: *mut u8, past_caches: bool) {
        // SAFETY: guaranteed by the caller. Every user ends with `fence`, through `Rows`.
        unsafe {
            if past_caches {
                _mm256_stream_si256(dst.cast(), value);
            } else {
                _mm256_storeu_si256(dst.cast(), value);
            }
        }
    }

    /// Does the work of [`raise10`] with AVX2. Returns the number of converted bytes of `src`, a
    /// multiple of 32.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn raise10_avx2(src: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = src.len().min(dst.len()) / 32 * 32;
        let dst = first(dst);
        let past_caches = dst as usize % 32 == 0;
        for at in (0..whole).step_by(32) {
            // SAFETY: at + 32 <= whole, inside both rows, aligned if `past_caches` is true.
            unsafe {
                let samples = _mm256_loadu_si256(src.as_ptr().add(at).cast());
                store(_mm256_slli_epi16::<6>(samples), dst.add(at), past_caches);
            }
        }
        whole
    }

    pub(super) fn interleave8_sse2(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = u.len().min(v.len()).min(dst.len() / 2) / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: at + 16 <= whole, so 16 bytes are readable in both
            // sources and 32 writable at 2 * at; no access needs alignment.
            // Every x86_64 has SSE2.
            unsafe {
                let u = _mm_loadu_si128(u.as_ptr().add(at).cast());
                let v = _mm_loadu_si128(v.as_ptr().add(at).cast());
                let dst = first(dst).add(2 * at);
                _mm_storeu_si128(dst.cast(), _mm_unpacklo_epi8(u, v));
                _mm_storeu_si128(dst.add(16).cast(), _mm_unpackhi_epi8(u, v));
            }
        }
        whole
    }

    pub(super) fn interleave10_sse2(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = u.len().min(v.len()).min(dst.len() / 2) / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: as in `interleave8_sse2`.
            unsafe {
                let u = _mm_slli_epi16::<6>(_mm_loadu_si128(u.as_ptr().add(at).cast()));
                let v = _mm_slli_epi16::<6>(_mm_loadu_si128(v.as_ptr().add(at).cast()));
                let dst = first(dst).add(2 * at);
                _mm_storeu_si128(dst.cast(), _mm_unpacklo_epi16(u, v));
                _mm_storeu_si128(dst.add(16).cast(), _mm_unpackhi_epi16(u, v));
            }
        }
        whole
    }

    pub(super) fn raise10_sse2(src: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = src.len().min(dst.len()) / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: at + 16 <= whole, inside both rows; no access needs alignment. Every x86_64
            // has SSE2.
            unsafe {
                let samples = _mm_loadu_si128(src.as_ptr().add(at).cast());
                _mm_storeu_si128(first(dst).add(at).cast(), _mm_slli_epi16::<6>(samples));
            }
        }
        whole
    }
}

#[cfg(target_arch = "aarch64")]
mod vector {
    //! Each function returns the number of bytes of `u` (or `src`) that it converted. Every
    //! aarch64 has NEON.

    use std::arch::aarch64::*;
    use std::cell::Cell;

    use super::first;

    /// Does nothing, because no store here bypasses the caches.
    pub(super) fn fence() {}

    pub(super) fn interleave8(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = u.len().min(v.len()).min(dst.len() / 2) / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: at + 16 <= whole, so 16 bytes are readable in both
            // sources and 32 writable at 2 * at; NEON needs no alignment.
            unsafe {
                let pair = uint8x16x2_t(
                    vld1q_u8(u.as_ptr().cast::<u8>().add(at)),
                    vld1q_u8(v.as_ptr().cast::<u8>().add(at)),
                );
                vst2q_u8(first(dst).add(2 * at), pair);
            }
        }
        whole
    }

    pub(super) fn interleave10(u: &[Cell<u8>], v: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = u.len().min(v.len()).min(dst.len() / 2) / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: as in `interleave8`; loads and stores go by bytes, so
            // rows may start at odd addresses.
            unsafe {
                let u = vshlq_n_u16::<6>(vreinterpretq_u16_u8(vld1q_u8(u.as_ptr().cast::<u8>().add(at))));
                let v = vshlq_n_u16::<6>(vreinterpretq_u16_u8(vld1q_u8(v.as_ptr().cast::<u8>().add(at))));
                let dst = first(dst).add(2 * at);
                vst1q_u8(dst, vreinterpretq_u8_u16(vzip1q_u16(u, v)));
                vst1q_u8(dst.add(16), vreinterpretq_u8_u16(vzip2q_u16(u, v)));
            }
        }
        whole
    }

    pub(super) fn raise10(src: &[Cell<u8>], dst: &[Cell<u8>]) -> usize {
        let whole = src.len().min(dst.len()) / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: at + 16 <= whole, inside both rows; bytewise access.
            unsafe {
                let samples = vreinterpretq_u16_u8(vld1q_u8(src.as_ptr().cast::<u8>().add(at)));
                vst1q_u8(first(dst).add(at), vreinterpretq_u8_u16(vshlq_n_u16::<6>(samples)));
            }
        }
        whole
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod vector {
    //! No vector version for this architecture: the functions convert nothing, and the scalar
    //! version converts everything.

    use std::cell::Cell;

    pub(super) fn fence() {}

    pub(super) fn interleave8(_: &[Cell<u8>], _: &[Cell<u8>], _: &[Cell<u8>]) -> usize {
        0
    }

    pub(super) fn interleave10(_: &[Cell<u8>], _: &[Cell<u8>], _: &[Cell<u8>]) -> usize {
        0
    }

    pub(super) fn raise10(_: &[Cell<u8>], _: &[Cell<u8>]) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Interleave = fn(&[Cell<u8>], &[Cell<u8>], &[Cell<u8>]) -> usize;
    type Twin = fn(&[Cell<u8>], &[Cell<u8>], &[Cell<u8>]);
    type Raise = fn(&[Cell<u8>], &[Cell<u8>]) -> usize;

    fn cells(bytes: &mut [u8]) -> &[Cell<u8>] {
        Cell::from_mut(bytes).as_slice_of_cells()
    }

    /// Returns every vector version that this machine can run; the selected version comes first.
    fn versions() -> Vec<(Interleave, Interleave, Raise)> {
        let mut all: Vec<(Interleave, Interleave, Raise)> =
            vec![(vector::interleave8, vector::interleave10, vector::raise10)];
        #[cfg(target_arch = "x86_64")]
        all.push((vector::interleave8_sse2, vector::interleave10_sse2, vector::raise10_sse2));
        all
    }

    fn noise(length: usize, mut state: u32) -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    /// Compares a vector version with the scalar version at many widths and at unaligned starts.
    /// Bytes around the row must not change.
    fn compare(
        sample: usize,
        factor: usize,
        scalar_version: Twin,
        vector: impl Fn(&[Cell<u8>], &[Cell<u8>], &[Cell<u8>]) -> usize,
    ) {
        const GUARD: u8 = 0xa5;
        for width in 0..=200 {
            for start in [0, 1, 2, 3, 7, 15, 16, 31] {
                let bytes = width * sample;
                let (mut u, mut v) = (noise(start + bytes, 1 + width as u32), noise(start / 2 + bytes, 77));
                let (u, v) = (cells(&mut u[start..]), cells(&mut v[start / 2..]));
                let mut expected = vec![GUARD; 96 + factor * bytes + 64];
                let mut got = expected.clone();
                // Start 0 is aligned, so both kinds of store run.
                let start = got.as_ptr().align_offset(32) + start;
                let range = start..start + factor * bytes;
                scalar_version(u, v, cells(&mut expected[range.clone()]));
                let done = vector(u, v, cells(&mut got[range.clone()]));
                assert!(done <= bytes && done % sample == 0);
                vector::fence();
                scalar_version(&u[done..], &v[done..], cells(&mut got[range][factor * done..]));
                assert!(got == expected, "width {width}, start {start}");
            }
        }
    }

    #[test]
    fn vectors_equal_their_scalar_twins_at_every_width() {
        for (interleave8, interleave10, raise10) in versions() {
            compare(1, 2, scalar::interleave8, interleave8);
            compare(2, 2, scalar::interleave10, interleave10);
            compare(2, 1, |src, _, dst| scalar::raise10(src, dst), |src, _, dst| raise10(src, dst));
        }
    }

    #[test]
    fn rows_are_finished_behind_the_last_vector() {
        let (mut u, mut v) = (noise(37, 5), noise(37, 6));
        let mut dst = [0; 74];
        Rows::new().interleave8(cells(&mut u), cells(&mut v), cells(&mut dst));
        for index in 0..37 {
            assert_eq!(dst[2 * index..2 * index + 2], [u[index], v[index]]);
        }
        let mut dst = [0; 4];
        Rows::new().interleave10(cells(&mut [0xff, 0x03]), cells(&mut [0x01, 0x00]), cells(&mut dst));
        assert_eq!(dst, [0xc0, 0xff, 0x40, 0x00]);
        let mut dst = [0; 2];
        Rows::new().raise10(cells(&mut [0x00, 0x02]), cells(&mut dst));
        assert_eq!(dst, [0x00, 0x80]);
    }

    #[test]
    #[should_panic(expected = "3 and 2 bytes into 6")]
    fn unequal_rows_are_refused() {
        Rows::new().interleave8(cells(&mut [1, 2, 3]), cells(&mut [1, 2]), cells(&mut [0; 6]));
    }
}
