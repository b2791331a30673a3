"""The figures of a demo run: the JSON file of docs/reference/demo.md and the table on the terminal."""

import math


def mean(values):
    return sum(values) / len(values)


def data_parallel_bytes(sites, steps, parameters):
    """A ring all-reduce of fp32 gradients at every step, all sites together: 2 (K - 1) / K x 4 bytes a parameter, site and step."""
    return round(2 * (sites - 1) / sites * 4 * parameters * steps * sites)


def held_out_loss(results, field):
    """Nats per byte over all ranks' parts of the held-out text."""
    return math.fsum(one[field] for one in results) / sum(one["held_out_bytes"] for one in results)


def build_report(options, runs):
    """`runs`: one dictionary a seed with the arms' results."""
    first = runs[0]
    parameters = first["sluice"]["results"][0]["parameters"]
    steps = options.rounds * options.inner_steps
    losses = {arm: [held_out_loss(run[arm]["results"], "loss_sum") for run in runs if arm in run]
              for arm in ("sluice", "data_parallel", "fp32_exchange")}
    loss = {"start": mean([held_out_loss(run["sluice"]["results"], "loss_start_sum") for run in runs]),
            "sluice": mean(losses["sluice"]), "data_parallel": mean(losses["data_parallel"])}
    loss["gap_percent"] = 100 * (loss["sluice"] / loss["data_parallel"] - 1)
    if losses["fp32_exchange"]:
        loss["fp32_exchange"] = mean(losses["fp32_exchange"])
        loss["gap_to_fp32_exchange_percent"] = 100 * (loss["sluice"] / loss["fp32_exchange"] - 1)
    sent = mean([run["sluice"]["bytes_sent"] for run in runs])
    plain = data_parallel_bytes(options.sites, steps, parameters)
    return {
        "sites": options.sites, "ranks_per_site": options.ranks, "parameters": parameters, "rounds": options.rounds,
        "inner_steps": options.inner_steps, "tokens": steps * options.sequences * options.sites * options.context,
        "loss": {key: round(value, 4) for key, value in loss.items()},
        "wan": {"bytes_sent": round(sent), "bytes_data_parallel_fp32": plain, "reduction": round(plain / sent, 1) if sent else None,
                "bits_per_value": round(mean([run["sluice"]["bits_per_value"] for run in runs]), 4), "preset": options.wan},
        "digests_equal": all(not run["sluice"]["problems"] for run in runs),
        "seconds": round(sum(run["seconds"] for run in runs), 1),
        "per_seed": [{"seed": run["seed"], "seconds": round(run["seconds"], 1),
                      **{arm: {"loss": round(held_out_loss(run[arm]["results"], "loss_sum"), 4), "seconds": round(run[arm]["seconds"], 1)}
                         for arm in losses if arm in run}} for run in runs],
    }


def table(report):
    loss, wan = report["loss"], report["wan"]
    rows = [("", "Sluice", "data parallel"),
            ("held-out loss, nats a byte", f"{loss['sluice']:.4f}", f"{loss['data_parallel']:.4f}"),
            ("bytes on the WAN", megabytes(wan["bytes_sent"]), megabytes(wan["bytes_data_parallel_fp32"])),
            ("exchanges", f"{report['rounds']}", f"{report['rounds'] * report['inner_steps']}"),
            ("bits a value", f"{wan['bits_per_value']:.2f}", "32")]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}" for row in rows]
    lines.insert(1, "  " + "-" * (sum(widths) + 4))
    lines += ["", f"  {wan['reduction'] or 0:.0f} times less WAN traffic; loss {loss['gap_percent']:+.2f} % against data parallel on the "
                  f"same {report['tokens']:,} tokens (at the start: {loss['start']:.3f})"]
    if "fp32_exchange" in loss:
        lines.append(f"  fp32 exchange with the same outer rule: {loss['fp32_exchange']:.4f} "
                     f"(Sluice {loss['gap_to_fp32_exchange_percent']:+.2f} %)")
    digests = "equal at all sites in every round" if report["digests_equal"] else "NOT EQUAL, see above"
    lines.append(f"  {report['sites']} sites x {report['ranks_per_site']} ranks, {report['parameters']:,} parameters; "
                 f"digests {digests}; {report['seconds']:.0f} s")
    return "\n".join(lines)


def megabytes(count):
    return f"{count / 1e6:,.1f} MB"
