//! The IOMMU.
