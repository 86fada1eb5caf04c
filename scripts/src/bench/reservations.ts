/** host-local with a full directory. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { interleave } from "./measure.ts";
import type { Container } from "../harness/container.ts";
import { pluginCommand } from "../harness/invocation.ts";
import { runSuccessfully } from "../harness/process.ts";
import { newBenchContainer, SUBNET } from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { type BenchRow, ratioRow, speedupRow, summarize } from "./table.ts";

const FEW_RESERVATIONS = 10;

export function reservationRows(bench: BenchWorkspace): readonly BenchRow[] {
  using scope = new DisposableStack();
  const container = newBenchContainer(scope, "one", 0);
  const many = bench.quick ? 6_000 : 60_000;
  const side = (directory: string, name: string, count: number) => {
    const dataDir = join(bench.state, `reservations-${name}`);
    fill(join(dataDir, name), count);
    return () => ({
      add: call(directory, dataDir, name, "add", container),
      del: call(directory, dataDir, name, "del", container),
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

/** @returns milliseconds */
function call(directory: string, dataDir: string, name: string, verb: "add" | "del", container: Container): number {
  const network = { cniVersion: "1.0.0", name, plugins: [] };
  const ipam = { type: "host-local", dataDir, ranges: [[{ subnet: SUBNET }]] };
  return runSuccessfully(pluginCommand(network, { type: ipam.type, ipam }, verb, { container }, directory)).ms;
}
