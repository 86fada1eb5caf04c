/** Writes tar archives whose bytes depend on the arguments only: no clock, no user and no file system is asked. @see tar(5) @module */

interface Named {
  /** Relative, with at most 100 bytes. */
  readonly path: string;
  /** By default 0o755. */
  readonly mode?: number;
}

export type TarEntry =
  & Named
  & ({ readonly data: Uint8Array } | { readonly hardLink: string } | { readonly symlink: string } | {
    readonly isDirectory: true;
  });

const BLOCK = 512;
/** Archives end with two empty blocks, and are filled up to this size. */
const RECORD = 20 * BLOCK;

/** All entries belong to root. @param time of all entries, in seconds @throws {RangeError} if a path is too long */
export function tar(entries: readonly TarEntry[], time: number): Buffer {
  const parts = entries.flatMap((entry) => {
    const data = "data" in entry ? entry.data : Buffer.alloc(0);
    return [header(entry, data.length, time), data, Buffer.alloc(padding(data.length, BLOCK))];
  });
  const length = parts.reduce((sum, part) => sum + part.length, 2 * BLOCK);
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK + padding(length, RECORD))]);
}

const padding = (length: number, size: number): number => (size - length % size) % size;

function header(entry: TarEntry, size: number, time: number): Buffer {
  const isDirectory = "isDirectory" in entry;
  const target = "hardLink" in entry ? entry.hardLink : "symlink" in entry ? entry.symlink : "";
  const type = "hardLink" in entry ? "1" : "symlink" in entry ? "2" : isDirectory ? "5" : "0";
  const block = Buffer.alloc(BLOCK);
  const text = (value: string, offset: number, length: number) => {
    if (Buffer.byteLength(value) > length) throw new RangeError(`Cannot archive "${value}": more than ${length} bytes`);
    block.write(value, offset);
  };
  const octal = (value: number, offset: number, length: number) =>
    text(`${value.toString(8).padStart(length - 1, "0")}\0`, offset, length);
  text(isDirectory ? `${entry.path}/` : entry.path, 0, 100);
  octal(entry.mode ?? 0o755, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(time, 136, 12);
  text(type, 156, 1);
  text(target, 157, 100);
  text("ustar\u000000", 257, 8);
  text("root", 265, 32);
  text("root", 297, 32);
  octal(0, 329, 8);
  octal(0, 337, 8);
  // The sum counts its own field as spaces.
  block.fill(" ", 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  text(`${sum.toString(8).padStart(6, "0")}\0 `, 148, 8);
  return block;
}
