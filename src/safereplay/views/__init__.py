"""What people look at: pictures, documents, and the pages made of them."""
