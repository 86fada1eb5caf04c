/** What the files before one have, found by what it may collide with. */
import { gatewaySubnetsOf } from "./gateway_networks.ts";
import type { LintFile, LintPlugin } from "./lint_file.ts";
import type { ConfiguredRange } from "./ranges.ts";
import { RangeMap } from "./range_map.ts";

export interface FilePlugin {
  readonly file: LintFile;
  readonly plugin: LintPlugin;
}

export interface RangeOwner extends FilePlugin {
  readonly range: ConfiguredRange;
}

/** A plugin without a bridge has a segment of its own. */
type Segment = string | LintPlugin;

export class EarlierFiles {
  readonly #byName = new Map<string, LintFile>();
  readonly #gateways = new Map<Segment, Map<string, FilePlugin>>();
  readonly #segments = new Map<Segment, RangeMap<RangeOwner>>();
  readonly #everywhere = new RangeMap<RangeOwner>(2, (a, b) => segmentOf(a.plugin) !== segmentOf(b.plugin));

  add(file: LintFile): void {
    if (file.name !== undefined && !this.#byName.has(file.name)) this.#byName.set(file.name, file);
    for (const plugin of file.plugins) {
      this.#addGateway({ file, plugin });
      for (const range of plugin.ranges) this.#addRange({ file, plugin, range });
    }
  }

  findByName(name: string): LintFile | undefined {
    return this.#byName.get(name);
  }

  /** Who gives out addresses of a range on the plugin's own bridge. */
  findOnSegment({ file, plugin, range }: RangeOwner): RangeOwner | undefined {
    return this.#segments.get(segmentOf(plugin))?.find(range.range, (owner) => owner.file.name !== file.name);
  }

  /** Who gives out addresses of a range somewhere else. */
  findElsewhere({ file, plugin, range }: RangeOwner): RangeOwner | undefined {
    const segment = segmentOf(plugin);
    return this.#everywhere.find(
      range.range,
      (owner) => segmentOf(owner.plugin) !== segment && owner.file.name !== file.name,
    );
  }

  /** Another network whose gateway address is on the plugin's bridge, if `isWanted` is true of it. */
  findGateway({ file, plugin }: FilePlugin, isWanted: (other: LintPlugin) => boolean): FilePlugin | undefined {
    for (const other of this.#gateways.get(segmentOf(plugin))?.values() ?? []) {
      if (other.file.name !== file.name && isWanted(other.plugin)) return other;
    }
    return undefined;
  }

  /** Of plugins with the same subnets, the first stands for all. */
  #addGateway(added: FilePlugin): void {
    const subnets = gatewaySubnetsOf(added.plugin).join(" ");
    if (subnets === "") return;
    const segment = segmentOf(added.plugin);
    const ofSegment = this.#gateways.get(segment) ?? new Map<string, FilePlugin>();
    this.#gateways.set(segment, ofSegment);
    if (!ofSegment.has(subnets)) ofSegment.set(subnets, added);
  }

  #addRange(owner: RangeOwner): void {
    const segment = segmentOf(owner.plugin);
    const ofSegment = this.#segments.get(segment) ?? new RangeMap<RangeOwner>(1, () => false);
    this.#segments.set(segment, ofSegment);
    ofSegment.add(owner.range.range, owner);
    this.#everywhere.add(owner.range.range, owner);
  }
}

const segmentOf = (plugin: LintPlugin): Segment => plugin.segment ?? plugin;
