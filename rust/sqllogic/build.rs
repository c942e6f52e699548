//! Tells the program what it is compiled for, so that it asks Cargo for the packages of this machine alone.

fn main() {
    if let Ok(target) = std::env::var("TARGET") {
        println!("cargo::rustc-env=SQLLOGIC_TARGET={target}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
