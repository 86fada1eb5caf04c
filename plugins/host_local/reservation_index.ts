/**
 * The index of a network's directory: a file beside it that lists the holders. ADD and DEL read it instead of the
 * directory.
 *
 * The index is valid while its header has the directory's stamp. Each change of the directory voids the stamp. The
 * header is written last, so a killed writer leaves a void index.
 *
 * The directory's lock protects both; the reference plugin takes it too. A program without the lock may change the
 * directory within the same millisecond. The index misses that until the next change, GC or boot. Even then no address
 * is allocated twice: its file decides.
 */
import { bootId, findBootId } from "../../ffi/sys/boot.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { createReadWrite, openFile, openReadWrite, pread, pwrite, removeFile } from "../../ffi/sys/file.ts";
import { currentBootTag, type Inventory } from "./inventory.ts";
import { readRenewedStamp, readStamp, renewStamp } from "./mtime_stamp.ts";
import { ReservationTable } from "./reservation_table.ts";

/** Changes with the file's form and with Bun's hash function. */
const formatName = () => `host-local index 3 ${Bun.hash.xxHash32("host-local")}`;
/** Three lines of text, then zeros. */
const HEADER_BYTES = 512;
/** A larger number is another program's. */
const MAX_RECORDS = 2 ** 24;

interface IndexContent {
  readonly table: ReservationTable;
  /** A time in milliseconds since 1970. */
  readonly listedAt: number;
  mayHaveEarlierBoot: boolean;
}

/** The caller applies its changes of the directory to `table`. */
export interface ReservationIndex extends IndexContent, Disposable {
  /** Makes the index valid for the present directory. If that fails, the next caller lists the directory. */
  commit(): void;
  /** Makes the next caller list the directory. */
  invalidate(): void;
}

interface IndexTarget {
  readonly boot: string;
  readonly directory: number;
  readonly file: number;
}

/** `undefined` if there is no valid index. @throws {SystemError} if there is no directory */
export function openIndex(directory: string): ReservationIndex | undefined {
  using resources = new DisposableStack();
  const opened = resources.use(openFile(directory));
  return ignoreSystemErrors(() => {
    const file = resources.use(openReadWrite(indexPath(directory)));
    const target = { boot: bootId(), directory: opened.fd, file: file.fd };
    const content = readContent(target);
    return content && createIndex(directory, content, target, resources.move());
  });
}

/** Indexes what `list` finds. If the index cannot be written, or the directory changes meanwhile, it serves this call only. */
export function rebuildIndex(
  directory: string,
  list: () => Inventory,
): { readonly index: ReservationIndex; readonly inventory: Inventory } {
  using resources = new DisposableStack();
  const opened = resources.use(openFile(directory));
  const path = indexPath(directory);
  const boot = findBootId();
  const time = boot && ignoreSystemErrors(() => renewStamp(opened.fd));
  const inventory = list();
  const content = contentOf(inventory);
  const target = boot && time && ignoreSystemErrors((): IndexTarget => {
    removeFile(path);
    const file = resources.use(createReadWrite(path));
    const created = { boot, directory: opened.fd, file: file.fd };
    writeContent(created, time, content);
    return created;
  });
  // The disk may be full.
  if (!target) ignoreSystemErrors(() => removeFile(path));
  return { index: createIndex(directory, content, target || undefined, resources.move()), inventory };
}

function contentOf({ holders, bootTags }: Inventory): IndexContent {
  const table = new ReservationTable();
  const currentTag = currentBootTag();
  let mayHaveEarlierBoot = false;
  for (const [address, holder] of holders) {
    const bootTag = bootTags.get(address) ?? 0;
    table.add(address, holder, bootTag);
    if (holder && bootTag !== currentTag) mayHaveEarlierBoot = true;
  }
  return { table, listedAt: Date.now(), mayHaveEarlierBoot };
}

/** @param target absent for an index in memory only */
function createIndex(
  directory: string,
  content: IndexContent,
  target: IndexTarget | undefined,
  resources: Disposable,
): ReservationIndex {
  return {
    ...content,
    commit() {
      if (target) ignoreSystemErrors(() => writeContent(target, renewStamp(target.directory), this));
    },
    invalidate: () => void ignoreSystemErrors(() => removeFile(indexPath(directory))),
    [Symbol.dispose]: () => resources[Symbol.dispose](),
  };
}

/** Beside the directory, because the reference plugin reads all files in it. No network's name begins with a dot. */
export function indexPath(directory: string): string {
  const slash = directory.lastIndexOf("/") + 1;
  return `${directory.slice(0, slash)}.${directory.slice(slash)}.index`;
}

function readContent({ boot, directory, file }: IndexTarget): IndexContent | undefined {
  const header = new Uint8Array(HEADER_BYTES);
  pread(file, 0, header);
  const [format, stamp, numbers = ""] = new TextDecoder().decode(header).split("\n");
  if (format !== formatName() || stamp !== readStamp(directory, boot)) return undefined;
  const [count = NaN, checksum, mayHaveEarlierBoot, listedAt = 0] = numbers.split(" ").map(Number);
  if (!(count <= MAX_RECORDS)) return undefined;
  const table = new ReservationTable(count, (bytes) => pread(file, HEADER_BYTES, bytes));
  if (checksumOf(table) !== checksum) return undefined;
  return { table, listedAt, mayHaveEarlierBoot: mayHaveEarlierBoot !== 0 };
}

/** @param time of the directory's new stamp, which voids the old header */
function writeContent({ boot, directory, file }: IndexTarget, time: bigint, content: IndexContent): void {
  const { table, mayHaveEarlierBoot, listedAt } = content;
  for (const [offset, bytes] of table.takeChanges()) pwrite(file, HEADER_BYTES + offset, bytes);
  const stamp = readRenewedStamp(directory, boot, time);
  const numbers = [table.count, checksumOf(table), Number(mayHaveEarlierBoot), listedAt];
  const header = new Uint8Array(HEADER_BYTES);
  new TextEncoder().encodeInto(`${formatName()}\n${stamp}\n${numbers.join(" ")}\n`, header);
  pwrite(file, 0, header);
}

/** It differs after a write of another program. */
function checksumOf(table: ReservationTable): number {
  return Bun.hash.crc32(table.bytes());
}
