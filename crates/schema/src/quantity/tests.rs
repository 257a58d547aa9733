use super::amount::MILLI;
use super::parse::{long, short};
use super::*;

fn q(text: &str) -> Quantity {
    text.parse().unwrap()
}

#[test]
fn the_fast_path_equals_the_general_one() {
    let mut taken = 0;
    for number in [1, 7, 8, 10, 64, 100, 999, 1000, 1001, 1024, 8000, 8001, 65_536, 123_456_789, 999_999_999]
    {
        for suffix in ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "Pi", "n", "e3", "x"] {
            let text = format!("{number}{suffix}");
            let (short_way, long_way) = (text.parse::<Quantity>(), long(&text));
            assert_eq!(format!("{short_way:?}"), format!("{long_way:?}"), "{text}");
            let text_of = |it: Quantity| it.to_string();
            assert_eq!(canonical(&text), long_way.clone().map(text_of), "{text}");
            assert_eq!(canonical_milli(&text), long_way.map(|it| text_of(it.round_up(MILLI))), "{text}");
            taken += usize::from(short(&text).is_some());
        }
    }
    assert!(taken > 100, "{taken}");
}

#[test]
fn quantities_are_formatted_like_upstream() {
    for pair in [
        "1000m 1",
        "0.5 500m",
        "1024Ki 1Mi",
        "1.5Gi 1536Mi",
        "1e3 1e3",
        "1E3 1E3",
        "12e4 120e3",
        "1e5 100e3",
        "1500e-3 1500e-3",
        "0 0",
        ".5 500m",
        "5. 5.",
        "+5 +5",
        "05Mi 05Mi",
        "1.0 1",
        "- 0",
        "+ 0",
        ". 0",
        "1e100 10e99",
        "1e-20 1e-9",
        "1n 1n",
        "0.1n 1n",
        "1.1n 2n",
        "-0.1n -1n",
        "-1.1n -2n",
        "-0.5 -500m",
        "12345678901234567890 12345678901234567890",
        "9223372036854775808 9223372036854775808",
        "16Ei 9223372036854775807",
        "7Ei 7Ei",
        "8Ei 9223372036854775807",
        "-9Ei -9223372036854775807",
        "1e18 1e18",
        "1e21 1e21",
        "1e-30 1e-9",
        "0e5 0",
        "0Gi 0",
        "0.0 0",
        "-0 0",
        "1E 1E",
        "1e+3 1e+3",
        "1.5Ki 1536",
        "1000Ki 1000Ki",
        "0.001Ki 1024m",
        "0.1Ki 102400m",
        "1.5u 1500n",
        "1024000Ki 1000Mi",
        "100000000000000000000000000000n 100E",
        "1.2345678901234567890123E 1234567890123456789012300u",
        "1.00000000000000000000000000000000001Ei 1152921504606846976000000001n",
        "12000m 12",
        "3000000m 3k",
        "1.0000000001Ti 1099511627885951162778n",
        "-1048576Ki -1Gi",
        "9Ki 9Ki",
        "+9Ki +9Ki",
        "8Ki 8Ki",
        "0.00000000000000000000000000000000001Ei 1n",
        "1.000Ki 1Ki",
        "1e00 1e00",
        "1E18 1E18",
        "1000000000000 1T",
        "12345678901234567890Ki 9223372036854775807",
        "1000E 1000E",
        "1e1000000000 10e999999999",
        "1e-1000000000 1e-9",
        "1.5G 1500M",
        " 7 7",
    ] {
        let (text, expected) = pair.rsplit_once(' ').unwrap();
        assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        assert_eq!(canonical(expected).as_deref(), Ok(expected), "{text} again");
    }
}

#[test]
fn invalid_quantities_have_upstream_errors() {
    for text in ["", "1e3k", "1e12k", "0x10", "1_000", "1e2e", "x", "1 k", "é", "1é", "--1-"] {
        assert_eq!(canonical(text), Err(QuantityError::Format), "{text}");
    }
    for text in
        ["1Kii", "1e", "1i", "+-1", "1-1", "1+1", "1Mi5", "1M5", "1m-5", "1e99999999999", "--1", "1ee3"]
    {
        assert_eq!(canonical(text), Err(QuantityError::Suffix), "{text}");
    }
}

#[test]
fn a_number_is_missing() {
    assert_eq!(canonical("Ki").as_deref(), Ok("0"));
    assert_eq!(canonical("Pi"), Err(QuantityError::Numeric));
    assert_eq!(canonical("-e-12"), Err(QuantityError::Numeric));
    assert_eq!(canonical("0Pi").as_deref(), Ok("0"));
}

#[test]
fn whole_and_milli_round_away_from_zero() {
    for (text, whole, milli) in [
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1e-20", 1, 1),
        ("1.1Ki", 1127, 1_126_400),
        ("1e30", i64::MAX, i64::MAX),
        ("-1e30", i64::MIN, i64::MIN),
        ("1e2000000000", i64::MAX, i64::MAX),
    ] {
        assert_eq!((q(text).whole(), q(text).milli()), (whole, milli), "{text}");
    }
    // the thousandths of the last three, in 64 bits, are 0, -1000 and -500
    let texts = ["3", "1500m", "18446744073709551616", "9223372036854775807", "9223372036854775807500m"];
    assert_eq!(texts.map(|text| q(text).is_whole()), [true, false, true, true, false]);
    assert_eq!(q("1500m").as_whole(), None);
    assert_eq!(q("3k").as_whole(), Some(3000));
    assert_eq!(canonical_milli("1n").as_deref(), Ok("1m"));
    assert_eq!(canonical_milli("+5").as_deref(), Ok("+5"));
    assert_eq!(canonical_milli("0.0001Ki").as_deref(), Ok("103m"));
}

#[test]
fn order_and_sums() {
    let ascending = [
        "-1e3000",
        "-2",
        "-1.5",
        "0",
        "1n",
        "1m",
        "999m",
        "1",
        "1.5",
        "1k",
        "1Ki",
        "1e9",
        "1Gi",
        "1e2000000000",
    ];
    for pair in ascending.windows(2) {
        assert!(q(pair[0]) < q(pair[1]), "{pair:?}");
    }
    assert_eq!(q("1000m"), q("1"));
    assert_eq!(q("1Gi").plus(&q("1Gi")).to_string(), "2Gi");
    assert_eq!(q("1").minus(&q("250m")).to_string(), "750m");
    assert_eq!(q("0").plus(&q("1Mi")).to_string(), "1Mi");
    assert_eq!(q("1").minus(&q("1")).to_string(), "0");
    assert_eq!(q("1e2000000000").plus(&q("1n")).sign(), 1);
    assert_eq!(Quantity::from_bytes(2048).to_string(), "2Ki");
    assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
}

#[test]
fn long_texts_are_linear_and_harmless() {
    let nines = "9".repeat(100_000);
    assert!(canonical(&nines).unwrap().starts_with("1000"));
    assert_eq!(canonical(&format!("0.{nines}")).as_deref(), Ok("1"));
    assert_eq!(canonical(&format!("{nines}.{nines}Gi")).as_deref(), Ok("9223372036854775807"));
    assert!(canonical(&format!("1e{nines}")).is_err());
}
