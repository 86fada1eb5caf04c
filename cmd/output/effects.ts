import { printable } from "./printable.ts";
import type { Effect } from "../../runtime/effects/effect.ts";
import type { Screen } from "./screen.ts";

/** A line for each effect, below the plugin that has it. */
export function formatEffects(effects: readonly Effect[], screen: Screen): string {
  if (effects.length === 0) return "Nothing would be changed.\n";
  const lines: string[] = [];
  let owner = "";
  for (let i = 0, count; i < effects.length; i += count) {
    const { plugin = "runtime", sentence, action } = effects[i]!;
    count = countEqual(effects, i);
    if (plugin !== owner) lines.push(screen.style("bold", plugin));
    owner = plugin;
    const text = printable(`  would ${sentence}${count > 1 ? ` (${count} times)` : ""}`);
    lines.push(action === "remove" ? screen.style("red", text) : text);
  }
  return lines.map((line) => `${line}\n`).join("");
}

/** Rules of one chain have equal sentences. */
function countEqual(effects: readonly Effect[], start: number): number {
  const { sentence, plugin } = effects[start]!;
  let end = start + 1;
  while (effects[end]?.sentence === sentence && effects[end]?.plugin === plugin) end++;
  return end - start;
}
