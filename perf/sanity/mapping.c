/* SPDX-License-Identifier: MIT */
/* How a mapping is made: its type, two types of one buffer at once, and pins over PCIe. */
#include <errno.h>
#include <string.h>

#include "common/copytest.h"
#include "common/exit.h"
#include "sanity/tests.h"

static void mapping_type(void)
{
	static const struct {
		int flag;
		gdr_mapping_type_t type;
	} wish[] = {
		{ GDR_MAP_FLAG_REQ_WC_MAPPING, GDR_MAPPING_TYPE_WC },
		{ GDR_MAP_FLAG_REQ_CACHE_MAPPING, GDR_MAPPING_TYPE_CACHING },
		{ GDR_MAP_FLAG_REQ_DEVICE_MAPPING, GDR_MAPPING_TYPE_DEVICE },
	};
	const char *name = NULL;
	struct buffer b;
	gdr_info_t info;
	uint64_t value;
	void *map;

	sanity_make(&b, 64 * KIB);
	OK(gdr_get_mapping_type_string(b.info.mapping_type, &name));
	CHECK(b.info.mapping_type > GDR_MAPPING_TYPE_NONE &&
		      b.info.mapping_type < GDR_MAPPING_TYPE_MAX,
	      "a mapping of type %d", (int)b.info.mapping_type);
	CHECK(b.info.mapped && b.info.wc_mapping == (b.info.mapping_type == GDR_MAPPING_TYPE_WC),
	      "mapped %d, wc_mapping %d, type %s", b.info.mapped, b.info.wc_mapping, name);
	OK(barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &value));
	CHECK(value == b.info.mapping_type,
	      "the default type is %llu by the attribute, %d by the mapping",
	      (unsigned long long)value, (int)b.info.mapping_type);
	sanity_note("the default mapping is %s", name);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	OK(gdr_get_info(b.g, b.mh, &info));
	CHECK(!info.mapped && !info.wc_mapping && info.mapping_type == GDR_MAPPING_TYPE_NONE,
	      "after the unmap: mapped %d, wc_mapping %d, type %d", info.mapped, info.wc_mapping,
	      (int)info.mapping_type);
	for (size_t i = 0; i < ARRAY_SIZE(wish); i++) {
		int rc = gdr_map_v2(b.g, b.mh, &map, b.map_size, wish[i].flag);

		OK(gdr_get_mapping_type_string(wish[i].type, &name));
		sanity_note("%s: %s", name, rc ? barcopy_last_error() : "can be asked for");
		if (rc) {
			EXPECT(rc, ENOTSUP);
			continue;
		}
		OK(gdr_get_info(b.g, b.mh, &info));
		CHECK(info.mapping_type == wish[i].type, "asked for %s, mapped as %d", name,
		      (int)info.mapping_type);
		OK(gdr_unmap(b.g, b.mh, map, b.map_size));
	}
	/* the next map has the default type again */
	OK(gdr_map(b.g, b.mh, &b.map, b.map_size));
	OK(gdr_get_info(b.g, b.mh, &info));
	CHECK(info.mapping_type == b.info.mapping_type, "the default type has become %d",
	      (int)info.mapping_type);
	sanity_unmake(&b);
}

/* Written through each of two mappings, read through the other. */
static void cross(gdr_mh_t one, uint8_t *a, gdr_mh_t other, uint8_t *b, uint64_t sequence)
{
	uint8_t in[4000], out[4000];

	copytest_random(in, sizeof(in), sequence);
	OK(gdr_copy_to_mapping(one, a + sequence, in, sizeof(in)));
	OK(barcopy_flush(one));
	OK(gdr_copy_from_mapping(other, out, b + sequence, sizeof(out)));
	SAME("written by one mapping, read by the other", in, out, sizeof(in));
	copytest_random(in, sizeof(in), ~sequence);
	OK(gdr_copy_to_mapping(other, b + sequence, in, sizeof(in)));
	OK(barcopy_flush(other));
	OK(gdr_copy_from_mapping(one, out, a + sequence, sizeof(out)));
	SAME("written by the other mapping, read by the one", in, out, sizeof(in));
}

/*
 * A second mapping of the same memory: a type that does not agree with the first one's is refused,
 * and each type that is granted shows the same bytes.
 */
static void two_types(void)
{
	struct buffer b;
	gdr_mh_t h;

	sanity_make(&b, 128 * KIB);
	OK(gdr_pin_buffer_v2(b.g, (unsigned long)b.mem.dptr, b.mem.size, 0, &h));
	for (int flag = GDR_MAP_FLAG_DEFAULT; flag <= GDR_MAP_FLAG_REQ_DEVICE_MAPPING; flag++) {
		size_t head = (size_t)(b.mem.dptr - b.info.va);
		const char *name;
		gdr_info_t info;
		void *map;
		int rc = gdr_map_v2(b.g, h, &map, b.map_size, flag);

		if (rc) {
			CHECK(flag != GDR_MAP_FLAG_DEFAULT, "a second mapping: %s",
			      barcopy_last_error());
			EXPECT(rc, ENOTSUP);
			sanity_note("refused: %s", barcopy_last_error());
			continue;
		}
		OK(gdr_get_info(b.g, h, &info));
		OK(gdr_get_mapping_type_string(info.mapping_type, &name));
		sanity_note("%s beside the default mapping", name);
		cross(b.mh, b.cpu, h, (uint8_t *)map + head, (uint64_t)flag);
		OK(gdr_unmap(b.g, h, map, b.map_size));
	}
	OK(gdr_unpin_buffer(b.g, h));
	sanity_unmake(&b);
}

static void force_pcie(void)
{
	struct gpu_mem mem;
	struct buffer b;

	sanity_alloc(&mem, 128 * KIB);
	sanity_view_or_waive(&b, mem.dptr, mem.size, GDR_PIN_FLAG_FORCE_PCIE);
	sanity_round_trip(&b, 1);
	OK(gdr_unpin_buffer(sanity.g, b.mh));
	mem_free(&mem);
}

const struct sanity_test sanity_mapping[] = {
	TEST(mapping_type, "the mapping's type, and wishes for another"),
	TEST(two_types, "a second mapping of each type"),
	TEST(force_pcie, "a pin over PCIe"),
	END_OF_TESTS,
};
