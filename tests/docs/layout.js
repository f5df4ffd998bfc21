// SPDX-License-Identifier: MIT
// What a reader would see wrong in docs/index.html, by the browser's own layout: one line for each
// fault, in an element of its own. tests/docs/browser.sh appends it to a copy of the page.
const faults = [];
const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
if (over > 0)
	faults.push(`the page is ${over} px wider than the window`);
let texts = 0;
for (const svg of document.querySelectorAll("svg")) {
	const frame = svg.getBoundingClientRect();
	const boxes = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
	if (frame.width < 200 || frame.height < 100)
		faults.push(`${svg.getAttribute("aria-label")}: ${frame.width} by ${frame.height} px`);
	boxes.forEach(([words, a], i) => {
		texts++;
		if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1)
			faults.push(`cut: ${words}`);
		for (const [other, b] of boxes.slice(i + 1))
			if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
				faults.push(`"${words}" lies on "${other}"`);
		for (const r of svg.querySelectorAll("rect")) {
			const box = r.getBoundingClientRect();
			const y = (a.top + a.bottom) / 2;
			const crosses = (x) => a.left < x - 1 && a.right > x + 1;
			if (y > box.top && y < box.bottom && (crosses(box.left) || crosses(box.right)))
				faults.push(`out of its box: ${words}`);
		}
	});
}
const report = document.createElement("section");
report.id = "layout";
report.textContent = [`pictures ${document.querySelectorAll("svg").length} texts ${texts} faults ${faults.length}`,
	...faults.map((f) => `fault: ${f}`), ""].join("\n");
document.body.append(report);
