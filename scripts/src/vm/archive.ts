/** The archive that a kernel unpacks as its first file system. @module */
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { runSuccessfully } from "../harness/process.ts";

/** A tree of links to the files of an archive. A path that is there already stays as it is. */
export class Archive {
  /** @param root an empty directory, where the tree is made */
  constructor(readonly root: string) {}

  /** Adds a file or a whole directory of this machine, whatever it is a link to. */
  add(path: string, source: string): void {
    const target = this.#prepare(path);
    if (!existsSync(target)) symlinkSync(source, target);
  }

  /** Adds the entries of a directory that are wanted, each as {@linkcode add} does. */
  addEntries(path: string, directory: string, isWanted: (name: string) => boolean): void {
    for (const name of readdirSync(directory).filter(isWanted)) this.add(join(path, name), join(directory, name));
  }

  /** Adds a program with this text. */
  write(path: string, text: string): void {
    writeFileSync(this.#prepare(path), text, { mode: 0o755 });
  }

  /** Adds an empty directory. */
  addDirectory(path: string): void {
    mkdirSync(join(this.root, path), { recursive: true });
  }

  /** Writes the archive. All files belong to root. @param omitted a pattern of find(1) */
  pack(file: string, omitted: string): void {
    const script = `cd "$1"; find -L . ! -name "$2" | busybox cpio -o -L -H newc -R 0:0 --renumber-inodes >"$3"`;
    runSuccessfully({ argv: ["sh", "-ec", script, "sh", this.root, omitted, file] });
    rmSync(this.root, { recursive: true });
  }

  #prepare(path: string): string {
    const target = join(this.root, path);
    mkdirSync(dirname(target), { recursive: true });
    return target;
  }
}
