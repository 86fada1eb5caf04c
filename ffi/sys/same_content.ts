import { type Descriptor, openFile, pread } from "./file.ts";
import { fstat } from "./stat.ts";

const COMPARED_BYTES = 1024 * 1024;

/** Compares ordinary files of any size. */
export function hasSameContent(path: string, other: string): boolean {
  using file = openFile(path);
  using otherFile = openFile(other);
  const { size } = fstat(file.fd);
  if (fstat(otherFile.fd).size !== size) return false;
  const read = ({ fd }: Descriptor, buffer: Uint8Array, offset: number): Uint8Array => {
    const bytes = buffer.subarray(0, size - offset);
    pread(fd, offset, bytes);
    return bytes;
  };
  const [buffer, otherBuffer] = [new Uint8Array(COMPARED_BYTES), new Uint8Array(COMPARED_BYTES)];
  for (let offset = 0; offset < size; offset += COMPARED_BYTES) {
    if (Buffer.compare(read(file, buffer, offset), read(otherFile, otherBuffer, offset)) !== 0) return false;
  }
  return true;
}
