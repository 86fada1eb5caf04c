import { createReadWrite, type Descriptor, pwrite, removeFile } from "../ffi/sys/file.ts";

/** The file holds zeros. Its name is removed at once: processes get its descriptor. */
export function openSharedFile(path: string, bytes: number): Descriptor {
  // A killed server may have left one.
  removeFile(path);
  const file = createReadWrite(path);
  removeFile(path);
  pwrite(file.fd, 0, new Uint8Array(bytes));
  return file;
}
