//! The image service.

use super::CriService;
use super::status::{missing, rpc_status};
use super::{from_cri, to_cri};
use crate::runtime::DetailsSubject;
use grpc::cri::image_service_server::ImageService;
use grpc::cri::{self, ImageSpec};
use grpc::tonic::{Request, Response, Status, async_trait};
use std::collections::BTreeMap;

/// The name in a specification of an image.
fn image_name(spec: Option<ImageSpec>) -> Result<String, Status> {
    let name = spec.unwrap_or_default().image;
    if name.is_empty() { Err(missing("the image")) } else { Ok(name) }
}

#[async_trait]
impl ImageService for CriService {
    async fn list_images(
        &self,
        request: Request<cri::ListImagesRequest>,
    ) -> Result<Response<cri::ListImagesResponse>, Status> {
        let filter = request.into_inner().filter.and_then(|it| it.image).unwrap_or_default().image;
        let images = match filter.is_empty() {
            true => self.runtime.images().await.map_err(rpc_status)?,
            false => self.runtime.image(&filter).await.map_err(rpc_status)?.into_iter().collect(),
        };
        let images = images.into_iter().map(to_cri::image).collect();
        Ok(Response::new(cri::ListImagesResponse { images }))
    }

    /// An image that is absent is no error.
    async fn image_status(
        &self,
        request: Request<cri::ImageStatusRequest>,
    ) -> Result<Response<cri::ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let name = image_name(request.image)?;
        let Some(image) = self.runtime.image(&name).await.map_err(rpc_status)? else {
            return Ok(Response::new(cri::ImageStatusResponse::default()));
        };
        let info = match request.verbose {
            true => self.runtime.details(DetailsSubject::Image(&image.id)).await.map_err(rpc_status)?,
            false => BTreeMap::new(),
        };
        Ok(Response::new(cri::ImageStatusResponse { image: Some(to_cri::image(image)), info }))
    }

    async fn pull_image(
        &self,
        request: Request<cri::PullImageRequest>,
    ) -> Result<Response<cri::PullImageResponse>, Status> {
        let request = request.into_inner();
        let name = image_name(request.image)?;
        let auth = request.auth.map(from_cri::auth);
        // clients may pull for a sandbox that has no name yet
        let mut sandbox = request.sandbox_config.unwrap_or_default();
        sandbox.metadata.get_or_insert_default();
        let sandbox = from_cri::sandbox_config(Some(sandbox))?;
        let image_ref = self.runtime.pull(&name, auth.as_ref(), &sandbox).await.map_err(rpc_status)?;
        Ok(Response::new(cri::PullImageResponse { image_ref }))
    }

    /// Removes an image with all of its names; one that is absent is no error.
    async fn remove_image(
        &self,
        request: Request<cri::RemoveImageRequest>,
    ) -> Result<Response<cri::RemoveImageResponse>, Status> {
        let name = image_name(request.into_inner().image)?;
        if let Some(image) = self.runtime.image(&name).await.map_err(rpc_status)? {
            self.runtime.remove_image(&image.id).await.map_err(rpc_status)?;
        }
        Ok(Response::new(cri::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<cri::ImageFsInfoRequest>,
    ) -> Result<Response<cri::ImageFsInfoResponse>, Status> {
        let stats = self.runtime.image_fs().await.map_err(rpc_status)?;
        let image_filesystems = stats.into_iter().map(to_cri::filesystem).collect();
        Ok(Response::new(cri::ImageFsInfoResponse { image_filesystems }))
    }
}
