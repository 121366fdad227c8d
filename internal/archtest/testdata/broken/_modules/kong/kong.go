package kong
