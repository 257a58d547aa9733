//! Compiles the `.api` files of this folder into tables and structs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use schema_lang::Source;

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = Vec::new();
    find(Path::new("."), &mut paths)?;
    let texts = paths.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = paths.iter().map(|path| format!("crates/api/{}", path.display())).collect();
    let sources: Vec<Source<'_>> =
        names.iter().zip(&texts).map(|(name, text)| Source { name, text }).collect();
    let compiled = schema_lang::compile(&sources).map_err(|problems| format!("\n{problems}\n"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?);
    fs::write(out.join("tables.rs"), compiled.tables)?;
    fs::write(out.join("structs.rs"), compiled.structs)?;
    Ok(())
}

/// All `.api` files below a folder, in a fixed order, so that the outcome depends on their content alone.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut paths =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let path = path.strip_prefix(".").map(Path::to_path_buf).unwrap_or(path);
        if path.is_dir() && !path.starts_with("src") {
            find(&path, found)?;
        } else if path.extension().is_some_and(|it| it == "api") {
            println!("cargo:rerun-if-changed={}", path.display());
            found.push(path);
        }
    }
    Ok(())
}
