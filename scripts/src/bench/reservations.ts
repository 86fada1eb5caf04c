/** host-local with a full directory. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { SUBNET } from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { type ProcessCommand, runSuccessfully } from "./process.ts";
import { type BenchRow, ratioRow, speedupRow, summarize } from "./table.ts";

const FEW_RESERVATIONS = 10;

export function reservationRows(bench: BenchWorkspace): readonly BenchRow[] {
  using netns = createNetns();
  const many = bench.quick ? 6_000 : 60_000;
  const side = (directory: string, name: string, count: number) => {
    const dataDir = join(bench.state, `reservations-${name}`);
    fill(join(dataDir, name), count);
    return () => ({
      add: runSuccessfully(call(directory, dataDir, name, "ADD", netns)).ms,
      del: runSuccessfully(call(directory, dataDir, name, "DEL", netns)).ms,
    });
  };
  const quickly = interleave(bench.rounds, {
    few: side(bench.plugins, "few", FEW_RESERVATIONS),
    many: side(bench.plugins, "many", many),
    reference: side(REFERENCE_DIRECTORY, "reference-few", FEW_RESERVATIONS),
  });
  // A call of the reference takes half a second then.
  const rounds = Math.max(3, Math.ceil(bench.rounds / 6));
  const slowly = interleave(rounds, {
    cni: side(bench.plugins, "cni-again", many),
    reference: side(REFERENCE_DIRECTORY, "reference-many", many),
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
    ratioRow({
      what: `${what} against ${FEW_RESERVATIONS}`,
      ours: summarize("cni", quickly[`many.${verb}`]),
      other: summarize(`cni, ${FEW_RESERVATIONS}`, quickly[`few.${verb}`]),
      goal: { atMost: 1.3 },
    }),
    speedupRow({
      what: `${what} against the reference`,
      ours: summarize("cni", slowly[`cni.${verb}`]),
      other: summarize("reference", slowly[`reference.${verb}`]),
      goal: { atLeast: 50 },
    }),
    speedupRow({
      what: `host-local ${verb.toUpperCase()} with ${FEW_RESERVATIONS} reservations`,
      ours: summarize("cni", quickly[`few.${verb}`]),
      other: summarize("reference", quickly[`reference.${verb}`]),
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

function call(directory: string, dataDir: string, name: string, command: string, netns: Netns): ProcessCommand {
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
