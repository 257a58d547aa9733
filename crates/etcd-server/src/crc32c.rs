//! CRC-32C, the checksum of etcd's hashes.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// A checksum of bytes that come in pieces.
pub struct Crc32c(u32);

impl Crc32c {
    pub fn new() -> Self {
        Self(!0)
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |crc, byte| TABLE[usize::from((crc as u8) ^ byte)] ^ (crc >> 8));
    }

    pub fn finish(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_polynomial_holds() {
        let mut crc = Crc32c::new();
        crc.update(b"12345");
        crc.update(b"6789");
        assert_eq!(crc.finish(), 0xe306_9283);
    }
}
