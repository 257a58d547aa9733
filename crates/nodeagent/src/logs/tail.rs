//! Finds the last lines of a file.

use std::io::{self, SeekFrom};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

const BLOCK: u64 = 4096;

/// The offset of the last `lines` lines before `end` of a file, read backwards in blocks.
pub async fn start_of_last(file: &mut File, end: u64, lines: u64) -> io::Result<u64> {
    if lines == 0 {
        return Ok(end);
    }
    let (mut at, mut newlines) = (end, 0);
    while at > 0 {
        let length = BLOCK.min(at);
        at -= length;
        file.seek(SeekFrom::Start(at)).await?;
        let mut block = vec![0; length as usize];
        file.read_exact(&mut block).await?;
        for (index, byte) in block.iter().enumerate().rev() {
            // the newline at the end of the file ends its last line
            let position = at + index as u64;
            if *byte == b'\n' && position + 1 != end {
                newlines += 1;
                if newlines == lines {
                    return Ok(position + 1);
                }
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let text = format!("{}\nb\nc\n", "a".repeat(9000));
        for (content, lines, expected) in [
            (text.as_str(), 1, 9003),
            (&text, 2, 9001),
            (&text, 3, 0),
            (&text, 9, 0),
            (&text, 0, 9005),
            ("a\nb", 1, 2),
            ("", 3, 0),
        ] {
            std::fs::write(&path, content).unwrap();
            let mut file = File::open(&path).await.unwrap();
            let end = content.len() as u64;
            assert_eq!(
                start_of_last(&mut file, end, lines).await.unwrap(),
                expected,
                "{lines} of {}",
                content.len()
            );
        }
    }
}
