import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { packTree } from "./image.ts";

const busybox = Bun.which("busybox");

test.skipIf(!busybox)(
  `an archive has the files that its tree links to${busybox ? "" : " # busybox is missing"}`,
  () => {
    const directory = mkdtempSync(join(tmpdir(), "cni-archive-"));
    try {
      const [source, root, unpacked] = ["source", "root", "unpacked"].map((name) => join(directory, name));
      mkdirSync(join(source, "part"), { recursive: true });
      mkdirSync(root);
      mkdirSync(unpacked);
      for (const size of [0, 1, 2, 3, 4, 5]) writeFileSync(join(source, "part", `${size}`), "y".repeat(size));
      writeFileSync(join(source, "part/0.map"), "");
      symlinkSync("part/3", join(source, "link"));
      symlinkSync(source, join(root, "a"));
      mkdirSync(join(root, "empty"));
      writeFileSync(join(root, "init"), "program", { mode: 0o755 });
      packTree(root, join(directory, "image"), "*.map");
      const input = readFileSync(join(directory, "image"));
      expect(Bun.spawnSync([busybox!, "cpio", "-i", "-d"], { cwd: unpacked, stdin: input }).exitCode).toBe(0);
      for (const size of [0, 1, 2, 3, 4, 5]) {
        expect(readFileSync(join(unpacked, "a/part", `${size}`), "utf8")).toBe("y".repeat(size));
      }
      expect(() => statSync(join(unpacked, "a/part/0.map"))).toThrow("ENOENT");
      expect(readFileSync(join(unpacked, "a/link"), "utf8")).toBe("yyy");
      expect(statSync(join(unpacked, "empty")).isDirectory()).toBe(true);
      expect(readFileSync(join(unpacked, "init"), "utf8")).toBe("program");
      expect(statSync(join(unpacked, "init")).mode & 0o777).toBe(0o755);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  },
);
