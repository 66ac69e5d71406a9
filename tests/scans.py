"""DICOM files for the tests."""

import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage


def dicom(path, levels, kind="MONOCHROME2", bits=12, **attributes):
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = pydicom.uid.generate_uid()
    data.SOPClassUID = SecondaryCaptureImageStorage
    data.Rows, data.Columns = levels.shape[:2]
    data.SamplesPerPixel = 3 if levels.ndim == 3 else 1
    if levels.ndim == 3:
        data.PlanarConfiguration = 0
    data.PhotometricInterpretation = kind
    data.BitsAllocated, data.BitsStored, data.HighBit = 8 * levels.itemsize, bits, bits - 1
    data.PixelRepresentation = int(levels.dtype.kind == "i")
    for name, value in attributes.items():
        setattr(data, name, value)
    data.PixelData = levels.tobytes()
    data.save_as(path, enforce_file_format=True)
    return path
