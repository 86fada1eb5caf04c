import { expect, test } from "bun:test";
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../../testing/directory.ts";

const directory = useDirectory("cni-packages-");

test.each(["current", "oldest"])("apt leaves the lists of this machine alone for the machine %s", (machine) => {
  const home = join(directory, machine);
  mkdirSync(home);
  const apt = join(home, "apt-get");
  // It knows an archive after an update, as apt does.
  const script = `#!/bin/sh
    case " $* " in *" Dir::State::Lists=${home}/"*) ;; *) echo "apt-get $*" >>${home}/own ;; esac
    case " $* " in *" update "*) touch ${home}/updated ;; esac
    [ ! -e ${home}/updated ] || echo http://archive.example/debian/
    `;
  writeFileSync(apt, script);
  chmodSync(apt, 0o755);
  const call = `import { afterUpdate, aptOptions } from ${JSON.stringify(join(import.meta.dir, "packages.ts"))};
    import { MACHINES } from ${JSON.stringify(join(import.meta.dir, "machine.ts"))};
    const options = aptOptions(MACHINES.${machine}, ${JSON.stringify(home)});
    let asked = 0;
    afterUpdate(options, "a package", () => asked++ === 0 ? undefined : "found");`;
  const env = { ...process.env, PATH: `${home}:${process.env["PATH"]}` };
  const { exitCode, stderr } = Bun.spawnSync([process.execPath, "-e", call], { env, stderr: "pipe" });
  expect([exitCode, stderr.toString()]).toEqual([0, ""]);
  expect(readdirSync(home).sort()).toEqual(["apt", "apt-get", "updated"]);
});
