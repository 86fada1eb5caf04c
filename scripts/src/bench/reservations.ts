/** host-local with a full directory. @module */
import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pluginCommand } from "../harness/invocation.ts";
import { type ProcessCommand, runSuccessfully } from "../harness/process.ts";
import { interleave } from "./measure.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchWorkspace, newBenchContainer, SUBNET } from "./workspace.ts";

export const FEW = 10;

export function reservationRows(bench: BenchWorkspace): readonly BenchRow[] {
  const many = bench.quick ? 6_000 : 60_000;
  const side = (directory: string, name: string, count: number) => hostLocalSide(bench, directory, name, count);
  const quickly = interleave(bench.rounds, {
    few: side(bench.plugins, "few", FEW),
    many: side(bench.plugins, "many", many),
    reference: side(REFERENCE_DIRECTORY, "reference-few", FEW),
  });
  // A call of the reference takes half a second then.
  const slowly = interleave(Math.max(3, Math.ceil(bench.rounds / 6)), {
    cni: side(bench.plugins, "cni-again", many),
    reference: side(REFERENCE_DIRECTORY, "reference-many", many),
  }, { warmUp: 1 });
  return ["add", "del"].flatMap((verb) => {
    const what = `host-local ${verb.toUpperCase()} with`;
    const full = `${what} ${many.toLocaleString("en")} reservations against`;
    const few = quickly[`few.${verb}`]!;
    const [reference, slowReference] = [quickly, slowly].map((samples) =>
      ["reference", samples[`reference.${verb}`]!] as const
    );
    return [
      row(`${full} ${FEW}`, "times", quickly[`many.${verb}`]!, [`cni, ${FEW}`, few], { atMost: 1.3 }),
      row(`${full} the reference`, "faster", slowly[`cni.${verb}`]!, slowReference, { atLeast: 50 }),
      row(`${what} ${FEW} reservations`, "faster", few, reference),
    ];
  });
}

/** Calls host-local in a directory of plugins, with that many reservations. */
export function hostLocalSide(
  bench: BenchWorkspace,
  directory: string,
  name: string,
  count: number,
  through = (command: ProcessCommand) => command,
) {
  const container = newBenchContainer(bench, "one", 0);
  const dataDir = join(bench.state, `reservations-${name}`);
  fill(join(dataDir, name), count);
  const ipam = { type: "host-local", dataDir, ranges: [[{ subnet: SUBNET }]] };
  const network = { cniVersion: "1.0.0", name, plugins: [] };
  const call = (verb: "add" | "del") =>
    runSuccessfully(through(pluginCommand(network, { type: ipam.type, ipam }, verb, { container }, directory))).ms;
  return () => ({ add: call("add"), del: call("del") });
}

function fill(directory: string, count: number): void {
  mkdirSync(directory, { recursive: true });
  const address = (number: number) => `10.66.${number >> 8}.${number & 255}`;
  for (let number = 2; number < count + 2; number++) {
    writeFileSync(join(directory, address(number)), `container-${number}\r\neth0`);
  }
  writeFileSync(join(directory, "last_reserved_ip.0"), address(count + 1));
}
