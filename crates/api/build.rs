//! Compiles the tables in `api/` into one Rust file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use schema::lang::{self, Source};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=api");
    let mut paths = Vec::new();
    find(Path::new("api"), &mut paths)?;
    let texts = paths.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = paths.iter().map(|path| format!("crates/kinds/{}", path.display())).collect();
    let sources: Vec<Source<'_>> =
        names.iter().zip(&texts).map(|(name, text)| Source { name, text }).collect();
    let compiled = lang::compile(&sources).map_err(|problems| format!("\n{problems}\n"))?;
    let out = env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?;
    fs::write(Path::new(&out).join("tables.rs"), compiled)?;
    Ok(())
}

/// All `.api` files below a folder, in a fixed order, so that the outcome depends on their content alone.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut paths =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        println!("cargo:rerun-if-changed={}", path.display());
        if path.is_dir() {
            find(&path, found)?;
        } else if path.extension().is_some_and(|it| it == "api") {
            found.push(path);
        }
    }
    Ok(())
}
