import { createReadWrite, type Descriptor, pwrite, removeFile } from "../ffi/sys/file.ts";

/** A file of zeros for processes that get its descriptor: the name `path` is removed at once. */
export function openSharedFile(path: string, bytes: number): Descriptor {
  // A killed server may have left one.
  removeFile(path);
  const file = createReadWrite(path);
  removeFile(path);
  pwrite(file.fd, 0, new Uint8Array(bytes));
  return file;
}
