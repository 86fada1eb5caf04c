import { parentOf } from "./directory.ts";
import { ENOSPC } from "./errno.ts";
import { ignoreErrors, SystemError, withPurpose } from "./error.ts";
import { sys } from "./libc.ts";
import { STATFS_BYTES } from "./stat.ts";
import { AT_FDCWD } from "./uapi.ts";

// unistd.h
const W_OK = 2;
const X_OK = 1;

/**
 * Requires that a directory is writable or can be created, and that its file system has space. Creates nothing.
 *
 * @throws {SystemError} `EROFS`, `EACCES`, `ENOTDIR`, `ENOSPC`
 */
export function requireWritableDirectory(path: string): void {
  const existing = withPurpose(`write to directory "${path}"`, () => {
    for (let directory = path;;) {
      // The final dot requires a directory.
      const found = ignoreErrors(["ENOENT"], () => sys.faccessat(AT_FDCWD, `${directory}/.`, W_OK | X_OK, 0));
      if (found !== undefined) return directory;
      const parent = parentOf(directory);
      if (parent === directory) throw new RangeError(`Cannot write to directory "${path}": no such parent`);
      directory = parent;
    }
  });
  requireSpace(existing === "" ? "/" : existing);
}

/**
 * Requires a free block and a free inode. File systems that count neither always have some.
 *
 * @throws {SystemError} `ENOSPC`
 */
export function requireSpace(directory: string): void {
  const bytes = new Uint8Array(STATFS_BYTES);
  withPurpose(`look at the file system of "${directory}"`, () => sys.statfs(directory, bytes));
  const view = new DataView(bytes.buffer);
  // struct statfs { f_type, f_bsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, … }
  const [blocks, freeBlocks, inodes, freeInodes] = [16, 24, 40, 48].map((at) => view.getBigUint64(at, true));
  const purpose = `write to directory "${directory}"`;
  if (blocks !== 0n && freeBlocks === 0n) throw new SystemError("statfs", ENOSPC, purpose, "no block is free");
  if (inodes !== 0n && freeInodes === 0n) throw new SystemError("statfs", ENOSPC, purpose, "no inode is free");
}
