//! The identity of the running program: which values of the store it need not check, since it has written them itself.
//!
//! Linkers write a digest of what they link into the program, as a note of an ELF file. A version number would not do: two
//! builds of one version may have other defaults. Without the note every value is checked.

use names::Names;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::num::NonZeroU64;
use store::BuildId;

/// The note is among the first bytes of the program.
const BEGINNING: u64 = 64 << 10;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// The identity of this program when it uses these names, which are part of the values.
pub(super) fn own(names: &Names) -> Option<BuildId> {
    let mut program = Vec::new();
    File::open("/proc/self/exe").ok()?.take(BEGINNING).read_to_end(&mut program).ok()?;
    let note = note(&program)?;
    let digest = Sha256::new().chain_update(note).chain_update(format!("{names:?}")).finalize();
    let number = u64::from_le_bytes(*digest.first_chunk::<8>()?);
    NonZeroU64::new(number).map(BuildId)
}

/// The linker's digest in the beginning of a 64-bit ELF file.
fn note(program: &[u8]) -> Option<&[u8]> {
    let identity = program.first_chunk::<6>()?;
    if identity != b"\x7fELF\x02\x01" {
        return None;
    }
    let headers = usize::try_from(long(program, 32)?).ok()?;
    let size = usize::from(short(program, 54)?);
    (0..usize::from(short(program, 56)?)).find_map(|nth| {
        let header = program.get(headers.checked_add(nth * size)?..)?;
        if int(header, 0)? != PT_NOTE {
            return None;
        }
        let from = usize::try_from(long(header, 8)?).ok()?;
        let to = from.checked_add(usize::try_from(long(header, 32)?).ok()?)?;
        build_id(program.get(from..to)?)
    })
}

/// The build id in a segment of notes: `name length, length, kind, name, content`, both padded.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (name, length, kind) = (int(notes, 0)? as usize, int(notes, 4)? as usize, int(notes, 8)?);
        let content = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = content.checked_add(length)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            return notes.get(content..end).filter(|id| !id.is_empty());
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn int(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note with a name and content.
    fn one(kind: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            note.extend_from_slice(&number.to_le_bytes());
        }
        for part in [name, content] {
            note.extend_from_slice(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    /// An ELF file of one segment of notes.
    fn program(notes: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        let mut header = vec![0; 56];
        header[0] = PT_NOTE as u8;
        header[8] = 120;
        header[32..40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        [file, header, notes.to_vec()].concat()
    }

    #[test]
    fn the_note_of_the_linker_is_found() {
        let notes =
            [one(1, b"GNU\0", b"abc"), one(3, b"other\0", b"x"), one(3, b"GNU\0", b"digest")].concat();
        let whole = program(&notes);
        assert_eq!(note(&whole), Some(b"digest".as_slice()));
        for end in 0..whole.len() - 2 {
            assert_eq!(note(&whole[..end]), None, "cut at {end}");
        }
        assert_eq!(note(&program(&one(1, b"GNU\0", b"abc"))), None);
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // whatever it is, it is no panic
            let _ = note(&flipped);
        }
    }

    #[test]
    fn other_names_are_another_program() {
        let kubernetes = Names::kubernetes();
        let other = Names { api_domain: "example.com".into(), ..Names::kubernetes() };
        assert_eq!(own(&kubernetes), own(&kubernetes));
        if own(&kubernetes).is_some() {
            assert_ne!(own(&kubernetes), own(&other));
        }
    }
}
