//! The images of a node's status: the largest ones.

use crate::runtime::ImageInfo;
use api::core::v1::ContainerImage;

/// The most names of an image.
const MAX_NAMES: usize = 5;

/// The images by size, at most `limit` of them; a negative limit is none.
pub fn node_images(images: &[ImageInfo], limit: i32) -> Vec<ContainerImage> {
    let mut sorted: Vec<&ImageInfo> = images.iter().collect();
    sorted.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let image = |image: &ImageInfo| ContainerImage {
        names: image.digests.iter().chain(&image.tags).take(MAX_NAMES).cloned().collect(),
        size_bytes: i64::try_from(image.size).unwrap_or(i64::MAX),
        ..ContainerImage::default()
    };
    sorted.into_iter().take(limit).map(image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_images_come_first() {
        let image = |size, tags: &[&str]| ImageInfo {
            size,
            tags: tags.iter().map(|&it| it.to_owned()).collect(),
            digests: vec!["d".to_owned()],
            ..ImageInfo::default()
        };
        let images = [image(1, &["a"]), image(3, &["b", "c", "d", "e", "f"]), image(2, &[])];
        let made = node_images(&images, 2);
        assert_eq!(made.iter().map(|it| it.size_bytes).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(made[0].names, ["d", "b", "c", "d", "e"]);
        assert_eq!((node_images(&images, -1).len(), node_images(&images, 0).len()), (3, 0));
    }
}
