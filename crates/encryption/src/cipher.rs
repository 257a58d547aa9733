//! The ciphers, byte-compatible with upstream's stored format.
//!
//! ```text
//! aescbc     16 bytes of initialization vector, then blocks, the last one padded (PKCS #7)
//! aesgcm     12 bytes of nonce, the ciphertext (as long as the value), 16 bytes of tag; the store key is authenticated
//! secretbox  24 bytes of nonce, 16 bytes of tag, the ciphertext (as long as the value)
//! ```
//!
//! Invariants: each value gets a fresh random nonce. No plaintext is returned before its tag is verified, where the
//! cipher has one; `aescbc` has none.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::consts::{U12, U16};
use aes::cipher::{
    BlockCipher, BlockDecrypt, BlockDecryptMut, BlockEncrypt, BlockEncryptMut, BlockSizeUser, InnerIvInit,
    KeyInit,
};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInPlace;
use crypto_secretbox::XSalsa20Poly1305;
use env::World;

const BLOCK: usize = 16;
const TAG: usize = 16;
const GCM_NONCE: usize = 12;
const BOX_NONCE: usize = 24;

/// AES key lengths, in bytes.
pub(crate) const AES_KEYS: &[usize] = &[16, 24, 32];
/// Secretbox key lengths, in bytes.
pub(crate) const BOX_KEYS: &[usize] = &[32];

const SHORT: &str = "the stored data was shorter than the required size";
const NOT_BLOCKS: &str = "the stored data is not a multiple of the block size";
const PADDING: &str = "the padding is wrong: the data was changed, or encrypted with another key";
const TAMPERED: &str =
    "message authentication failed: the data was changed or moved, or encrypted with another key";
const TOO_LONG: &str = "the value is too long for the cipher";

/// A cipher with one key.
pub(crate) trait Cipher: Send + Sync {
    /// Appends the encrypted value to `out`.
    fn encrypt(&self, plain: &[u8], key: &str, world: &World, out: &mut Vec<u8>) -> Result<(), &'static str>;

    /// Decrypts a value that was encrypted with this key and for this store key.
    fn decrypt(&self, encrypted: &[u8], key: &str) -> Result<Vec<u8>, &'static str>;
}

/// Appends random bytes to `out`; returns where they begin.
fn draw(count: usize, world: &World, out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.resize(at + count, 0);
    world.fill(&mut out[at..]);
    at
}

struct Gcm<C>(AesGcm<C, U12>)
where
    AesGcm<C, U12>: AeadInPlace;

impl<C> Cipher for Gcm<C>
where
    AesGcm<C, U12>: AeadInPlace<NonceSize = U12, TagSize = U16> + Send + Sync,
{
    fn encrypt(&self, plain: &[u8], key: &str, world: &World, out: &mut Vec<u8>) -> Result<(), &'static str> {
        out.reserve(GCM_NONCE + plain.len() + TAG);
        let start = draw(GCM_NONCE, world, out);
        out.extend_from_slice(plain);
        let (nonce, text) = out[start..].split_at_mut(GCM_NONCE);
        let nonce = aes_gcm::Nonce::from_slice(nonce);
        let tag = self.0.encrypt_in_place_detached(nonce, key.as_bytes(), text).map_err(|_| TOO_LONG)?;
        out.extend_from_slice(&tag);
        Ok(())
    }

    fn decrypt(&self, encrypted: &[u8], key: &str) -> Result<Vec<u8>, &'static str> {
        if encrypted.len() < GCM_NONCE + TAG {
            return Err(SHORT);
        }
        let (nonce, rest) = encrypted.split_at(GCM_NONCE);
        let (text, tag) = rest.split_at(rest.len() - TAG);
        let (nonce, tag) = (aes_gcm::Nonce::from_slice(nonce), aes_gcm::Tag::from_slice(tag));
        let mut plain = text.to_vec();
        let decrypted = self.0.decrypt_in_place_detached(nonce, key.as_bytes(), &mut plain, tag);
        decrypted.map_err(|_| TAMPERED)?;
        Ok(plain)
    }
}

struct Cbc<C>(C);

impl<C> Cipher for Cbc<C>
where
    C: BlockCipher + BlockEncrypt + BlockDecrypt + BlockSizeUser<BlockSize = U16> + Clone + Send + Sync,
{
    fn encrypt(&self, plain: &[u8], _: &str, world: &World, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let padded = (plain.len() / BLOCK + 1) * BLOCK;
        out.reserve(BLOCK + padded);
        let start = draw(BLOCK, world, out);
        out.extend_from_slice(plain);
        out.resize(start + BLOCK + padded, 0);
        let (vector, text) = out[start..].split_at_mut(BLOCK);
        let vector = aes::Block::from_slice(vector);
        let mode = cbc::Encryptor::<C>::inner_iv_init(self.0.clone(), vector);
        mode.encrypt_padded_mut::<Pkcs7>(text, plain.len()).map_err(|_| TOO_LONG)?;
        Ok(())
    }

    fn decrypt(&self, encrypted: &[u8], _: &str) -> Result<Vec<u8>, &'static str> {
        let (vector, text) = encrypted.split_at_checked(BLOCK).ok_or(SHORT)?;
        if text.is_empty() || !text.len().is_multiple_of(BLOCK) {
            return Err(NOT_BLOCKS);
        }
        let mut plain = text.to_vec();
        let mode = cbc::Decryptor::<C>::inner_iv_init(self.0.clone(), aes::Block::from_slice(vector));
        let length = mode.decrypt_padded_mut::<Pkcs7>(&mut plain).map_err(|_| PADDING)?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

struct SecretBox(XSalsa20Poly1305);

impl Cipher for SecretBox {
    fn encrypt(&self, plain: &[u8], _: &str, world: &World, out: &mut Vec<u8>) -> Result<(), &'static str> {
        out.reserve(BOX_NONCE + TAG + plain.len());
        let start = draw(BOX_NONCE, world, out);
        out.extend_from_slice(&[0; TAG]);
        out.extend_from_slice(plain);
        let (nonce, rest) = out[start..].split_at_mut(BOX_NONCE);
        let (tag, text) = rest.split_at_mut(TAG);
        let nonce = crypto_secretbox::Nonce::from_slice(nonce);
        let made = self.0.encrypt_in_place_detached(nonce, b"", text).map_err(|_| TOO_LONG)?;
        tag.copy_from_slice(&made);
        Ok(())
    }

    fn decrypt(&self, encrypted: &[u8], _: &str) -> Result<Vec<u8>, &'static str> {
        if encrypted.len() < BOX_NONCE + TAG {
            return Err(SHORT);
        }
        let (nonce, rest) = encrypted.split_at(BOX_NONCE);
        let (tag, text) = rest.split_at(TAG);
        let (nonce, tag) =
            (crypto_secretbox::Nonce::from_slice(nonce), crypto_secretbox::Tag::from_slice(tag));
        let mut plain = text.to_vec();
        self.0.decrypt_in_place_detached(nonce, b"", &mut plain, tag).map_err(|_| TAMPERED)?;
        Ok(plain)
    }
}

/// AES-GCM; `None` for an invalid key length.
pub(crate) fn gcm(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Gcm(AesGcm::<Aes128, U12>::new_from_slice(key).ok()?)),
        24 => Box::new(Gcm(AesGcm::<Aes192, U12>::new_from_slice(key).ok()?)),
        32 => Box::new(Gcm(AesGcm::<Aes256, U12>::new_from_slice(key).ok()?)),
        _ => return None,
    })
}

/// AES-CBC; `None` for an invalid key length.
pub(crate) fn cbc(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Cbc(Aes128::new_from_slice(key).ok()?)),
        24 => Box::new(Cbc(Aes192::new_from_slice(key).ok()?)),
        32 => Box::new(Cbc(Aes256::new_from_slice(key).ok()?)),
        _ => return None,
    })
}

/// XSalsa20 and Poly1305.
pub(crate) fn secret_box(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(Box::new(SecretBox(XSalsa20Poly1305::new_from_slice(key).ok()?)))
}
