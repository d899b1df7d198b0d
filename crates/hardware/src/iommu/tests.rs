//! Tests of the whole IOMMU.
