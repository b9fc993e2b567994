// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the errors on a machine without the device of a hardware API. There is one test per
//! API; a test is ignored if the machine has the device.

use std::process::ExitCode;

use framepath_codec::{Hardware, HardwareApi};
use framepath_testkit::harness::{self, Missing, Tested, test};

fn main() -> ExitCode {
    let tests = HardwareApi::ALL.into_iter();
    harness::main(tests.map(|api| test(format!("without_a_device::{api}"), move || without(api))).collect())
}

fn without(api: HardwareApi) -> Tested {
    match Hardware::open(api) {
        Ok(hardware) => Err(Missing::new(format!("there is a device: {hardware:?}"))),
        Err(error) => {
            assert!(error.to_string().starts_with(&format!("{api}: no device: ")), "{error}");
            Ok(())
        }
    }
}
