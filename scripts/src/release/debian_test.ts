import { expect } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { debianPackage } from "./debian.ts";

const LIBRARIES = [{ path: "cni-lib/libc.so.6", mode: 0o644, data: Buffer.from("library") }];

testWith(
  ["dpkg-deb", "dpkg-parsechangelog"],
  "dpkg-deb(1) reads the package, whose sums are those of its files",
  () => {
    const scratch = mkdtempSync(join(tmpdir(), "cni-deb-"));
    try {
      const release = { version: "0.1.0", architecture: "arm64", maintainer: "A B <a@example.org>", time: 1e9 };
      const binaries = { program: Buffer.from("program"), shim: Buffer.from("shim!"), libraries: LIBRARIES };
      const documentation = { "man/man8/cni.8": ".TH CNI 8\n" };
      const file = join(scratch, "cni.deb");
      writeFileSync(file, debianPackage(release, binaries, { "LICENSE.third-party": "text" }, documentation));
      const run = (...command: string[]) => {
        const child = Bun.spawnSync(command, { cwd: scratch, stderr: "pipe", env: { ...process.env, TZ: "UTC" } });
        expect([child.exitCode, child.stderr.toString()]).toEqual([0, ""]);
        return child.stdout.toString();
      };
      const fields = run("dpkg-deb", "--field", file, "Package", "Version", "Architecture", "Maintainer");
      expect(fields).toBe("Package: cni\nVersion: 0.1.0\nArchitecture: arm64\nMaintainer: A B <a@example.org>\n");
      const contents = run("dpkg-deb", "--contents", file);
      // Engines start the shim, which looks for the program beside itself.
      const lines = ["7 2001-09-09 01:46 ./usr/lib/cni/cni-full\n", "5 2001-09-09 01:46 ./usr/lib/cni/cni\n"];
      for (const line of [...lines, "7 2001-09-09 01:46 ./usr/lib/cni/cni-lib-0.1.0/libc.so.6\n"]) {
        expect(contents).toContain(`root/root         ${line}`);
      }
      for (const link of ["./usr/lib/cni/bridge -> cni\n", "./usr/sbin/cni -> ../lib/cni/cni\n"]) {
        expect(contents).toContain(link);
      }
      // dpkg renames files in this order: a call finds the libraries of one version, as they have a directory of their own.
      const [libraries, link] = ["cni-lib-0.1.0/libc.so.6\n", "cni-lib -> cni-lib-0.1.0\n"].map((end) =>
        contents.indexOf(end)
      );
      expect(libraries).toBeGreaterThan(0);
      expect(link).toBeGreaterThan(libraries!);
      run("dpkg-deb", "--raw-extract", file, "raw");
      run("sh", "-ec", "cd raw; md5sum --check --strict --quiet DEBIAN/md5sums");
      expect(run("zcat", "raw/usr/share/man/man8/cni.8.gz")).toBe(".TH CNI 8\n");
      expect(run("sh", "-ec", "zcat raw/usr/share/doc/cni/changelog.gz | dpkg-parsechangelog -l- -S Changes"))
        .toContain("  * `cni serve`, a server");
      for (const script of ["preinst", "postinst", "prerm", "postrm"]) run("sh", "-n", `raw/DEBIAN/${script}`);
    } finally {
      rmSync(scratch, { recursive: true });
    }
  },
);
