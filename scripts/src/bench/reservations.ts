/** host-local with a full directory. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { SUBNET } from "./network.ts";
import { type Bench, REFERENCE } from "./workspace.ts";
import { type Command, must } from "./process.ts";
import { faster, figure, type Row, times } from "./table.ts";

const FEW = 10;

export function reservationRows(bench: Bench): readonly Row[] {
  using netns = createNetns();
  const many = bench.quick ? 6_000 : 60_000;
  const side = (directory: string, name: string, count: number) => {
    const dataDir = join(bench.state, `reservations-${name}`);
    fill(join(dataDir, name), count);
    return () => ({
      add: must(call(directory, dataDir, name, "ADD", netns)).ms,
      del: must(call(directory, dataDir, name, "DEL", netns)).ms,
    });
  };
  const quickly = interleave(bench.rounds, {
    few: side(bench.plugins, "few", FEW),
    many: side(bench.plugins, "many", many),
    reference: side(REFERENCE, "reference-few", FEW),
  });
  // A call of the reference takes half a second then.
  const rounds = Math.max(3, Math.ceil(bench.rounds / 6));
  const slowly = interleave(rounds, {
    cni: side(bench.plugins, "cni-again", many),
    reference: side(REFERENCE, "reference-many", many),
  }, { warmUp: 1 });
  return ["add", "del"].flatMap((verb) => rows(verb, many.toLocaleString("en"), quickly, slowly));
}

function rows(
  verb: string,
  many: string,
  quickly: Readonly<Record<string, readonly number[]>>,
  slowly: typeof quickly,
) {
  const what = `host-local ${verb.toUpperCase()} with ${many} reservations`;
  return [
    times({
      what: `${what} against ${FEW}`,
      ours: figure("cni", quickly[`many.${verb}`]),
      other: figure(`cni, ${FEW}`, quickly[`few.${verb}`]),
      goal: { atMost: 1.3 },
    }),
    faster({
      what: `${what} against the reference`,
      ours: figure("cni", slowly[`cni.${verb}`]),
      other: figure("reference", slowly[`reference.${verb}`]),
      goal: { atLeast: 50 },
    }),
    faster({
      what: `host-local ${verb.toUpperCase()} with ${FEW} reservations`,
      ours: figure("cni", quickly[`few.${verb}`]),
      other: figure("reference", quickly[`reference.${verb}`]),
    }),
  ];
}

/** Reservations as the reference writes them. */
function fill(directory: string, count: number): void {
  mkdirSync(directory, { recursive: true });
  const address = (number: number) => `10.66.${number >> 8}.${number & 255}`;
  for (let number = 2; number < count + 2; number++) {
    writeFileSync(join(directory, address(number)), `container-${number}\r\neth0`);
  }
  writeFileSync(join(directory, "last_reserved_ip.0"), address(count + 1));
}

function call(directory: string, dataDir: string, name: string, command: string, netns: Netns): Command {
  const ipam = { type: "host-local", dataDir, ranges: [[{ subnet: SUBNET }]] };
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: "one",
    CNI_IFNAME: "eth0",
    CNI_NETNS: netns.path,
    CNI_PATH: directory,
  };
  return { argv: [join(directory, "host-local")], env, stdin: JSON.stringify({ cniVersion: "1.0.0", name, ipam }) };
}
