/**
 * Writes the archive that the kernel unpacks as its first file system.
 *
 * @see Documentation/driver-api/early-userspace/buffer-format.rst of Linux ("newc")
 * @module
 */

/** Permissions and kind of an entry, as in `st_mode`. */
const DIRECTORY = 0o040755;
const PROGRAM = 0o100755;
const LINK = 0o120777;

/** An archive that grows by files; every file belongs to root and may be executed. */
export interface Archive {
  /** Adds a file at an absolute path, and the folders above it. A path that is there already stays as it is. */
  file(path: string, content: Uint8Array | string): void;
  /** Adds a symbolic link. */
  link(path: string, target: string): void;
  /** Adds an empty folder. */
  folder(path: string): void;
  /** The parts of the archive, in order. */
  finish(): readonly Uint8Array[];
}

/** An empty archive. */
export function newArchive(): Archive {
  const parts: Uint8Array[] = [];
  const present = new Set<string>([""]);
  const add = (path: string, mode: number, content: Uint8Array) => {
    const name = path.replace(/^\//, "");
    if (present.has(name)) return;
    folder(name.slice(0, Math.max(0, name.lastIndexOf("/"))));
    present.add(name);
    parts.push(...entry(name, mode, content, present.size));
  };
  const folder = (path: string) => add(path, DIRECTORY, NOTHING);
  return {
    file: (path, content) => add(path, PROGRAM, typeof content === "string" ? encoder.encode(content) : content),
    link: (path, target) => add(path, LINK, encoder.encode(target)),
    folder,
    finish: () => [...parts, ...entry("TRAILER!!!", 0, NOTHING, 0)],
  };
}

const encoder = new TextEncoder();
const NOTHING = new Uint8Array(0);

/** The header, the name and the content; name and content are each padded so that the next part starts at a multiple of 4. */
function entry(name: string, mode: number, content: Uint8Array, inode: number): Uint8Array[] {
  const bytes = encoder.encode(`${name}\0`);
  const [owner, group, links, time, noDevice] = [0, 0, 1, 0, 0];
  const fields = [inode, mode, owner, group, links, time, content.length, noDevice, noDevice, noDevice, noDevice];
  const checksum = 0;
  const header = ["070701", ...[...fields, bytes.length, checksum].map((field) => field.toString(16).padStart(8, "0"))];
  const head = encoder.encode(header.join(""));
  return [head, bytes, padding(head.length + bytes.length), content, padding(content.length)];
}

const padding = (length: number): Uint8Array => new Uint8Array(-length & 3);
