//! Kubeconfigs: any file is read or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outbound::{Target, Users};

fuzz_target!(
    init: fuzz::forgive_panics_in("saphyr-parser"),
    |data: &[u8]| {
        let file = fuzz::temporary::file("kubeconfig", data);
        // without authorities those of the system are read, which takes long
        if let Ok(target) = Target::from_kubeconfig(&file)
            && (target.authorities.is_some() || target.insecure)
        {
            let _ = outbound::HttpClient::new(&target, outbound::Limits::REVIEW);
        }
        if let Ok(users) = Users::from_kubeconfig(&file) {
            users.of("example.com:443");
        }
    }
);
