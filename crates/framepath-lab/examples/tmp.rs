use framepath_lab::experiment::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s = Settings {
        size: if a.get(2).is_some_and(|s| s == "full") { Size::Full } else { Size::Quick },
        pairs: a.get(3).and_then(|p| p.parse().ok()),
        cases: a[4.min(a.len())..].to_vec(),
        framepath: "target/release/framepath".into(),
        clips: "clips".into(),
        peers: "target/peers".into(),
    };
    let t = std::time::Instant::now();
    let sum = find(&a[1]).unwrap().run(&s, &framepath_lab::watch::Silent).unwrap();
    println!("{}", framepath_lab::plain::tables(&sum.summary));
    println!("took {:?}", t.elapsed());
}
