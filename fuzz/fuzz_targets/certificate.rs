//! Client certificates: a changed one is refused or names the same user; any bytes are read without a panic.

#![no_main]

use auth::x509::{self, Authorities};
use fuzz::certificates::{AUTHORITY, CLIENT, NOW};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static AUTHORITIES: LazyLock<Authorities> =
    LazyLock::new(|| Authorities::new([AUTHORITY.der()]).expect("an authority"));

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    let is_changed = choice % 2 == 0;
    let der = if is_changed { fuzz::mutated(&CLIENT, rest) } else { rest.to_vec() };
    let user = x509::identify(&der);
    let _ = (x509::names(&der), x509::common_name(&der), x509::valid_until(&der), x509::public_key(&der));
    let verified = AUTHORITIES.verify(&der, &[rest], NOW as i64);
    if verified.is_ok() {
        assert_eq!(user, x509::identify(&CLIENT));
    }
});
